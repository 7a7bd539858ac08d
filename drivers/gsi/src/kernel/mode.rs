//! The option `ktls`: when the kernel gets the keys.

use gridhaul_security::tls::{Direction, RecordKeys};
use gridhaul_stack::StackError;
use gridhaul_stack::options::{Audience, OptionDoc, OptionKind, Options};

use super::support::ability;

/// The option of the driver `gsi`.
pub(crate) const OPTION: OptionDoc = OptionDoc {
    name: "ktls",
    meaning: "lets the kernel protect records: auto where that is cheaper, on, or off",
    example: "auto",
    kind: OptionKind::Word,
    // `on` has the kernel parse a peer's records even where the measurement advises against it; and a site that switches it off
    // because of its kernel means all channels.
    audience: Audience::Administrator("it decides which records the kernel of the server parses"),
};

/// When the kernel gets the keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum KtlsMode {
    /// In directions in which that is cheaper.
    #[default]
    Cheaper,
    /// Always; it is an error if the kernel refuses them.
    Always,
    /// Never.
    Never,
}

impl KtlsMode {
    /// Reads the option.
    pub(crate) fn parse(options: &Options<'_>) -> Result<Self, StackError> {
        let mode = options.value(OPTION.name, |text| match text {
            "auto" => Ok(Self::Cheaper),
            "on" => match ability() {
                Ok(_) => Ok(Self::Always),
                Err(reason) => Err(reason.clone()),
            },
            "off" => Ok(Self::Never),
            _ => Err("it is none of auto, on and off".to_owned()),
        })?;
        Ok(mode.unwrap_or_default())
    }

    /// Whether the kernel gets these keys.
    pub(crate) fn applies(self, direction: Direction, keys: &RecordKeys<'_>) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Cheaper => ability().as_ref().is_ok_and(|ability| {
                ability.supports(keys.version) && ability.is_cheaper(direction)
            }),
        }
    }
}
