//! The settings of transfers: the mode, the number of connections, their protection and their stacks.

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::feature::SimpleFeature;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::stack::StackSpec;

use super::super::arguments::{ModeArgument, Parallel, StripeArgument};
use super::super::environment::data_place;
use super::super::report::amount;
use super::reach::{Way, is_translated};
use super::shared::Shared;
use super::streams::{self, Flight};
use crate::session::{DataCommands, DataProtection, Session, TransferSettings};

impl Shared {
    /// The settings of transfers to a server, or between two of them.
    pub(super) fn settings(&self, servers: &[&Session]) -> TransferSettings {
        let have_blocks = servers.iter().all(|one| one.has(SimpleFeature::Parallel));
        let mode = match self.wanted_mode() {
            Some(mode) => mode,
            // Data channels serve several files, and a restart knows what has arrived.
            None if have_blocks => TransferMode::Extended,
            None => TransferMode::Stream,
        };
        self.settings_in(mode, servers)
    }

    /// The settings of a transfer from a server to this machine, and whether it tries if the server reaches this machine. One file
    /// is a stream, because it would gain nothing by channels that serve several files.
    pub(super) fn settings_of_get(
        &self,
        server: &Session,
        is_only: bool,
    ) -> (TransferSettings, bool) {
        let way = || match is_only
            || !server.has(SimpleFeature::Parallel)
            || !data_place().is_advertised()
                && is_translated(server.local().ip(), server.peer().ip())
        {
            true => Way::Stream,
            false => self.reach.way(server.server()),
        };
        let (mode, tries) = match self.wanted_mode() {
            Some(mode) => (mode, false),
            None => match way() {
                Way::Try => (TransferMode::Extended, true),
                Way::Blocks => (TransferMode::Extended, false),
                Way::Stream => (TransferMode::Stream, false),
            },
        };
        (self.settings_in(mode, &[server]), tries)
    }

    /// The settings of gets in MODE E, if that is what files of this server are got in.
    pub(super) fn settings_of_blocks(&self, server: &Session) -> Option<TransferSettings> {
        let mode = self.wanted_mode().or_else(|| {
            let reaches = self.reach.reaches(server.server());
            reaches.then_some(TransferMode::Extended)
        });
        mode.filter(|mode| *mode == TransferMode::Extended)
            .map(|mode| self.settings_in(mode, &[server]))
    }

    /// The mode that a get continues in, if an earlier attempt has begun it in one and the user wants no other.
    pub(super) fn mode_of_begun(&self, begun: Option<TransferMode>) -> Option<TransferMode> {
        begun.filter(|_| self.wanted_mode().is_none())
    }

    /// A file begins that goes this way: with `--parallel auto` it gets the number of connections that is measured now.
    pub(super) fn begin(
        &self,
        way: &streams::Way,
        settings: &mut TransferSettings,
    ) -> Option<Flight> {
        if !self.adapts(settings) {
            return None;
        }
        let flight = self.streams.begin(way);
        settings.parallelism = flight.streams();
        Some(flight)
    }

    /// Small files get the number as well, but are not measured: they take more time for commands than for bytes.
    pub(super) fn settle(&self, way: &streams::Way, settings: &mut TransferSettings) {
        if self.adapts(settings) {
            settings.parallelism = self.streams.now(way);
        }
    }

    fn adapts(&self, settings: &TransferSettings) -> bool {
        self.arguments.data.parallel == Parallel::Auto && settings.mode == TransferMode::Extended
    }

    /// The mode that the user wants.
    fn wanted_mode(&self) -> Option<TransferMode> {
        let data = &self.arguments.data;
        match (data.mode, data.parallel) {
            (ModeArgument::Stream, _) => Some(TransferMode::Stream),
            (ModeArgument::Auto, Parallel::Fixed(1)) if data.stripe != StripeArgument::Always => {
                None
            }
            (ModeArgument::Extended | ModeArgument::Auto, _) => Some(TransferMode::Extended),
        }
    }

    pub(super) fn settings_in(&self, mode: TransferMode, servers: &[&Session]) -> TransferSettings {
        let data = &self.arguments.data;
        let offer_rdma = servers.iter().all(|one| one.has(SimpleFeature::Radr));
        let (stack, commands) = match &self.arguments.rdma {
            Some(rdma) if offer_rdma => (rdma.told(), DataCommands::Rdma),
            _ => (data.channels.stack.clone(), DataCommands::Usual),
        };
        TransferSettings {
            mode,
            parallelism: match data.parallel {
                Parallel::Fixed(count) => count,
                // `begin` and `settle` know more.
                Parallel::Auto => 1,
            },
            protection: data
                .channels
                .protection(DataProtection::default_of(servers)),
            stack,
            commands,
            striping: data.stripe.into(),
        }
    }

    /// The stack of this machine for transfers with these settings.
    pub(super) fn stack_here(&self, settings: &TransferSettings) -> StackSpec {
        match (&self.arguments.rdma, settings.commands) {
            (Some(rdma), DataCommands::Rdma) => data_place().placed(rdma.stack.clone()),
            _ => self.arguments.data.channels.stack_here(),
        }
    }
}

/// How a file goes, for people: `here` is the stack of this machine, and the destination has `present`.
pub(super) fn how(
    settings: &TransferSettings,
    here: Option<&StackSpec>,
    present: &RangeSet,
) -> String {
    let mut words = match settings.mode {
        TransferMode::Stream => "stream mode".to_owned(),
        TransferMode::Extended if settings.parallelism == 1 => {
            "MODE E with 1 connection".to_owned()
        }
        TransferMode::Extended => format!("MODE E with {} connections", settings.parallelism),
    };
    words += match settings.protection {
        DataProtection::None => ", data in the clear",
        DataProtection::Authenticated => ", data authenticated",
        DataProtection::Private => ", data encrypted",
    };
    if settings.commands == DataCommands::Rdma {
        words += ", by the commands of RFTP";
    }
    if let Some(here) = here {
        words += &format!(", the stack {here} here");
    }
    if let Some(stack) = &settings.stack {
        words += &format!(", the stack {stack} at servers");
    }
    if !present.is_empty() {
        words += &format!(", continues with {} there", amount(present.covered()));
    }
    words
}
