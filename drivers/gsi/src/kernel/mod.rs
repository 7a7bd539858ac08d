//! TLS in the kernel: after the handshake it gets the keys of a channel, and what is sent is plaintext from then on.
//!
//! That saves copies: a file goes from the page cache into records without a detour, and records are opened into the
//! memory that asks for them. Whether it saves time depends on the kernel's ciphers, so both are measured once in a
//! process. Only AES-GCM is handed over. TLS 1.3 may change keys in the middle, which the kernel can do since Linux 6.14;
//! one that cannot gets such channels only if the stack insists.

mod channel;
mod sending;
mod socket;
mod support;
mod trial;

use gridhaul_security::tls::{Direction, RecordKeys, RecordVersion};
use gridhaul_stack::StackError;
use gridhaul_stack::options::{Audience, OptionDoc, OptionKind, Options};

pub(crate) use self::channel::Offload;
use self::support::{Ability, ability};
pub use self::support::{KernelSupport, kernel_support};

/// The option of the driver `gsi`.
pub(crate) const OPTION: OptionDoc = OptionDoc {
    name: "ktls",
    meaning: "lets the kernel protect records: auto where that is cheaper, on, or off",
    example: "auto",
    kind: OptionKind::Word,
    // `on` gives records of a peer to code of the kernel where it was not chosen by measurement; and a site that turned it off
    // because of its kernel has done so for all channels.
    audience: Audience::Administrator("it decides which records the kernel of the server parses"),
};

/// When the kernel is given the keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Wish {
    /// In directions in which that is cheaper.
    #[default]
    Cheaper,
    /// Always; it is an error if the kernel does not take them.
    Always,
    /// Never.
    Never,
}

impl Wish {
    /// What the option says.
    pub(crate) fn parse(options: &Options<'_>) -> Result<Self, StackError> {
        let wish = options.value(OPTION.name, |text| match text {
            "auto" => Ok(Self::Cheaper),
            "on" => match ability() {
                Ok(_) => Ok(Self::Always),
                Err(reason) => Err(reason.clone()),
            },
            "off" => Ok(Self::Never),
            _ => Err("it is none of auto, on and off".to_owned()),
        })?;
        Ok(wish.unwrap_or_default())
    }

    /// Whether the kernel is to get these keys.
    fn applies(self, direction: Direction, keys: &RecordKeys<'_>) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Cheaper => ability().as_ref().is_ok_and(|ability| {
                ability.follows(keys.version) && ability.is_cheaper(direction)
            }),
        }
    }
}

impl Ability {
    /// Whether it can go along with all that a connection of this version may do.
    fn follows(&self, version: RecordVersion) -> bool {
        version == RecordVersion::Tls12 || self.changes_keys
    }
}
