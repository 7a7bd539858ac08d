//! Settings of transfers, which are sent when they differ from what the server was told.

use gridhaul_protocol::command::{
    Command, DataChannelAuthentication, MarkerEvent, OptsCommand, Parallelism, ProtectionLevel,
    RetrieveOptions, SiteCommand, StackRequest, Text, TransferMode,
};
use gridhaul_protocol::facts::Fact;
use gridhaul_protocol::feature::Feature;
use gridhaul_protocol::stack::{DriverSpec, StackSpec};

use super::Session;
use crate::control::ControlError;
use crate::login::Login;

/// How the data of a transfer moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferSettings {
    /// Stream mode or MODE E.
    pub mode: TransferMode,
    /// The connections of a transfer in MODE E, 1 to 64.
    pub parallelism: u8,
    /// The authentication and encryption of data channels.
    pub protection: DataProtection,
    /// The driver stack that the server is to use; `None` is its own choice.
    pub stack: Option<StackSpec>,
    /// The commands for the data port and the file.
    pub commands: DataCommands,
    /// The use of several data nodes.
    pub striping: Striping,
}

/// Whether transfers in MODE E use an address for each data node of a server (GFD.20 `SPAS`, `SPOR`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Striping {
    /// Where both ends have the commands.
    #[default]
    Auto,
    /// A server that lacks them is an error.
    Always,
    /// One address.
    Never,
}

/// The commands that set a data port and move a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataCommands {
    /// `PASV`, `PORT`, `STOR`, `RETR` and their variants.
    Usual,
    /// `RPSV`, `RADR`, `RSTR`, `RRTR`: those of RFTP, over the driver `rdma`. A server that has them says `RADR` in `FEAT`.
    Rdma,
}

/// The authentication and encryption of data channels (GFD.20 DCAU, RFC 2228 PROT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataProtection {
    /// `DCAU N`: neither.
    None,
    /// `DCAU A`, `PROT C`: both ends prove that they act for the user, and data is clear.
    Authenticated,
    /// `DCAU A`, `PROT P`: data is encrypted, too.
    Private,
}

/// The driver that protects data channels.
const GSI: &str = "gsi";

/// What the server was told last.
#[derive(Debug)]
pub(super) struct Told {
    mode: TransferMode,
    parallelism: u8,
    protection: DataProtection,
    authentication: DataChannelAuthentication,
    is_buffer_told: bool,
    are_restarts_told: bool,
    is_progress_told: bool,
    are_facts_told: bool,
    stack: Option<StackSpec>,
    /// Those of the next data port; the server is not told.
    commands: DataCommands,
}

impl Told {
    /// GFD.20: after a login with a certificate, `DCAU A` and `PROT C`.
    pub(super) fn after_login(with_certificate: bool) -> Self {
        Self {
            mode: TransferMode::Stream,
            parallelism: 1,
            protection: match with_certificate {
                true => DataProtection::Authenticated,
                false => DataProtection::None,
            },
            authentication: match with_certificate {
                true => DataChannelAuthentication::User,
                false => DataChannelAuthentication::None,
            },
            is_buffer_told: false,
            are_restarts_told: false,
            is_progress_told: false,
            are_facts_told: false,
            stack: None,
            commands: DataCommands::Usual,
        }
    }

    /// The commands of the next data port.
    pub(super) fn commands(&self) -> DataCommands {
        self.commands
    }

    /// Whether data channels are authenticated.
    pub(super) fn protects_data(&self) -> bool {
        self.protection != DataProtection::None
    }
}

impl TransferSettings {
    /// Stream mode, protected as these servers expect it after their logins, with the drivers of their choice.
    pub fn of(servers: &[&Session]) -> Self {
        Self {
            mode: TransferMode::Stream,
            parallelism: 1,
            protection: DataProtection::default_of(servers),
            stack: None,
            commands: DataCommands::Usual,
            striping: Striping::Auto,
        }
    }
}

impl Session {
    /// Tells the server what differs from before.
    ///
    /// # Errors
    ///
    /// When the server refuses a setting, or the session has ended.
    pub(crate) async fn settle(&mut self, wanted: &TransferSettings) -> Result<(), ControlError> {
        let user = DataChannelAuthentication::User;
        self.settle_with(wanted, user).await
    }

    /// As [`Self::settle`], where the other end of data channels acts for this user, if they are authenticated.
    ///
    /// # Errors
    ///
    /// As [`Self::settle`].
    pub(crate) async fn settle_with(
        &mut self,
        wanted: &TransferSettings,
        user: DataChannelAuthentication,
    ) -> Result<(), ControlError> {
        self.settings.commands = wanted.commands;
        self.settle_protection(wanted.protection, user).await?;
        let stack = self.stack_of(wanted);
        if self.settings.stack != stack {
            let drivers = stack.as_ref().map(StackSpec::to_string);
            let request = drivers.and_then(Text::new);
            let request = request.map_or(StackRequest::Default, StackRequest::Drivers);
            let command = Command::Site(SiteCommand::SetNetStack(request));
            self.control.must(&command).await?;
            self.settings.stack = stack;
        }
        if self.settings.mode != wanted.mode {
            self.control.must(&Command::Mode(wanted.mode)).await?;
            self.settings.mode = wanted.mode;
        }
        if self.settings.parallelism != wanted.parallelism {
            let options = RetrieveOptions {
                parallelism: Some(Parallelism::fixed(wanted.parallelism.into())),
                ..RetrieveOptions::default()
            };
            let command = Command::Opts(OptsCommand::Retrieve(options));
            self.control.must(&command).await?;
            self.settings.parallelism = wanted.parallelism;
        }
        Ok(())
    }

    /// The stack that the server is told. globus-gridftp-server protects data channels only if the stack has the driver `gsi`
    /// (observed from version 13.24), and globus-url-copy inserts it in the same place.
    fn stack_of(&self, wanted: &TransferSettings) -> Option<StackSpec> {
        let mut stack = self.own_stack.as_ref().or(wanted.stack.as_ref())?.clone();
        let has_gsi = stack.drivers.iter().any(|driver| driver.name == GSI);
        if self.has_mutual_data() && wanted.protection != DataProtection::None && !has_gsi {
            let place = stack.drivers.len().min(1);
            stack.drivers.insert(place, DriverSpec::plain(GSI));
        }
        Some(stack)
    }

    /// Asks for restart markers each second, so that little is sent again after a failure. A server may not have the command.
    ///
    /// # Errors
    ///
    /// When the session has ended.
    pub(crate) async fn settle_markers(&mut self) -> Result<(), ControlError> {
        if !self.settings.are_restarts_told {
            self.settings.are_restarts_told = true;
            self.ask_for(MarkerEvent::Restart).await?;
        }
        Ok(())
    }

    /// Asks for performance markers each second, which are all that is known of the progress between two servers.
    ///
    /// # Errors
    ///
    /// When the session has ended.
    pub(crate) async fn settle_progress(&mut self) -> Result<(), ControlError> {
        if !self.settings.is_progress_told {
            self.settings.is_progress_told = true;
            self.ask_for(MarkerEvent::Performance).await?;
        }
        Ok(())
    }

    /// Asks for lines of listings without the facts that this program does not use: they are more than half of the bytes, and some cost the
    /// server a look-up of a name. A server may not have the command.
    ///
    /// # Errors
    ///
    /// When the session has ended.
    pub(crate) async fn settle_facts(&mut self) -> Result<(), ControlError> {
        if std::mem::replace(&mut self.settings.are_facts_told, true) {
            return Ok(());
        }
        match used_facts(&self.features) {
            Some(names) => {
                let command = Command::Opts(OptsCommand::Facts(names));
                self.control.ask(&command).await.map(drop)
            }
            None => Ok(()),
        }
    }

    async fn ask_for(&mut self, event: MarkerEvent) -> Result<(), ControlError> {
        let command = Command::Trev { event, seconds: 1 };
        self.control.ask(&command).await.map(drop)
    }

    async fn settle_protection(
        &mut self,
        wanted: DataProtection,
        user: DataChannelAuthentication,
    ) -> Result<(), ControlError> {
        let told = self.settings.protection;
        match (self.login.has_tls(), wanted) {
            (true, DataProtection::Authenticated) if told != wanted => {
                return Err(ControlError::NoMutual);
            }
            // RFC 4217 has no DCAU: PROT alone says whether data channels have TLS.
            (true, _) => {}
            (false, _) => self.settle_authentication(wanted, user).await?,
        }
        let level = |protection| match protection {
            DataProtection::Private => ProtectionLevel::Private,
            DataProtection::None | DataProtection::Authenticated => ProtectionLevel::Clear,
        };
        if level(told) != level(wanted) {
            // RFC 2228 3: PROT comes after PBSZ, which TLS ignores (RFC 4217 9).
            if !self.settings.is_buffer_told {
                let bytes = match self.login.has_tls() {
                    true => 0,
                    false => 1 << 20,
                };
                self.control.must(&Command::Pbsz(bytes)).await?;
                self.settings.is_buffer_told = true;
            }
            self.control.must(&Command::Prot(level(wanted))).await?;
        }
        self.settings.protection = wanted;
        Ok(())
    }

    /// Sends `DCAU A`, also if the server knows it.
    pub(super) async fn authenticate_data(&mut self) -> Result<(), ControlError> {
        let user = DataChannelAuthentication::User;
        self.control.must(&Command::Dcau(user.clone())).await?;
        self.settings.authentication = user;
        self.settings.protection = DataProtection::Authenticated;
        Ok(())
    }

    async fn settle_authentication(
        &mut self,
        wanted: DataProtection,
        user: DataChannelAuthentication,
    ) -> Result<(), ControlError> {
        let authentication = match wanted {
            DataProtection::None => DataChannelAuthentication::None,
            _ => user,
        };
        if self.settings.authentication != authentication {
            let command = Command::Dcau(authentication.clone());
            self.control.must(&command).await?;
            self.settings.authentication = authentication;
        }
        Ok(())
    }

    /// The protection of data channels if the user wants nothing else.
    pub(crate) fn default_protection(&self) -> DataProtection {
        match self.login {
            _ if self.has_mutual_data() => DataProtection::Authenticated,
            Login::Tls { .. } => DataProtection::Private,
            Login::Certificate { .. } | Login::Clear(_) | Login::Ssh(_) => DataProtection::None,
        }
    }
}

impl DataProtection {
    /// That of a transfer with these servers. Where one has TLS, data is never in the clear unless the user says so.
    pub(crate) fn default_of(servers: &[&Session]) -> Self {
        let mut all = servers.iter().map(|one| one.default_protection());
        if all.clone().any(|one| one == Self::Private) {
            return Self::Private;
        }
        match all.all(|one| one == Self::Authenticated) {
            true => Self::Authenticated,
            false => Self::None,
        }
    }
}

/// The names of the facts that this program uses, of those that listings have now. `None` if there are no others.
fn used_facts(features: &[Feature]) -> Option<Vec<Text>> {
    /// What [`super::Facts`] are made of.
    const USED: [Fact; 5] = [
        Fact::Type,
        Fact::Modify,
        Fact::Size,
        Fact::UnixMode,
        Fact::UnixSlink,
    ];

    let facts = features.iter().find_map(|feature| match feature {
        Feature::Facts(facts) => Some(facts),
        _ => None,
    })?;
    let is_used = |name: &Text| {
        let fact = Fact::from_name(name.as_str().as_bytes());
        fact.is_some_and(|fact| USED.contains(&fact))
    };
    let shown = facts.iter().filter(|fact| fact.selected);
    let (used, others): (Vec<_>, Vec<_>) = shown.map(|fact| fact.name.clone()).partition(is_used);
    (!others.is_empty()).then_some(used)
}

#[cfg(test)]
mod tests {
    use gridhaul_protocol::feature;
    use gridhaul_protocol::reply::Reply;

    use super::*;

    #[test]
    fn listings_keep_the_facts_that_are_used() {
        let used = |line: &str| {
            let reply = Reply::spaced(211, "Extensions supported", [line], "End.");
            let names = used_facts(&feature::parse(&reply))?;
            Some(names.iter().map(Text::as_str).collect::<Vec<_>>().join(" "))
        };
        let globus = "MLST Type*;Size*;Modify*;Perm*;Charset;UNIX.mode*;UNIX.owner*;Unique*;UNIX.slink*;X.count;";
        let expected = "Type Size Modify UNIX.mode UNIX.slink";
        assert_eq!(used(globus).as_deref(), Some(expected));
        assert_eq!(used("MLST type*;perm*;size;").as_deref(), Some("type"));
        assert_eq!(used("MLST Type*;Size*;Perm;"), None);
        assert_eq!(used("SIZE"), None);
    }
}
