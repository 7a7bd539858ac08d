//! The account of a session.

use std::path::{Component, Path};

use gridhaul_shares::{Network, Source};
use gridhaul_transfer::{Admission, NodeAccount};

use super::values::{self, WireError};
use crate::generated as message;

/// The most address blocks of a session.
const MAX_BLOCKS: usize = 4096;

/// What a session sends first. `own_root` is the root of the control server: instead of it the node serves its own.
pub(crate) fn attach(account: &NodeAccount, own_root: &Path) -> message::Attach {
    message::Attach {
        source: Some(values::ip(account.source.network.first_address())),
        share_account: account.source.account.as_deref().map(str::to_owned),
        name: account.name.clone(),
        account: account.account.clone(),
        root: (account.root != own_root).then(|| values::path(&account.root)),
        read_only: account.read_only,
        admission: match &account.admission {
            Admission::Anyone => None,
            Admission::Hosts(blocks) => Some(message::AddressBlocks {
                blocks: blocks.iter().map(ToString::to_string).collect(),
            }),
        },
    }
}

/// The account on the node, whose own root is `own_root`.
pub(crate) fn account(sent: &message::Attach, own_root: &Path) -> Result<NodeAccount, WireError> {
    let source = sent
        .source
        .as_ref()
        .ok_or_else(|| WireError::missing("source"))?;
    let admission = match &sent.admission {
        None => Admission::Anyone,
        Some(hosts) if hosts.blocks.len() > MAX_BLOCKS => {
            return Err(WireError(format!("{} address blocks", hosts.blocks.len())));
        }
        Some(hosts) => {
            let blocks = hosts.blocks.iter().map(|block| block.parse());
            let blocks: Result<_, _> = blocks.collect();
            Admission::Hosts(blocks.map_err(|error| WireError(format!("a wrong block: {error}")))?)
        }
    };
    let root = sent.root.as_deref().map(values::to_path).transpose()?;
    if let Some(root) = &root {
        check_root(root, own_root)?;
    }
    Ok(NodeAccount {
        source: Source {
            network: Network::of(values::to_ip(source)?),
            account: sent.share_account.as_deref().map(Into::into),
        },
        name: sent.name.clone(),
        account: sent.account.clone(),
        root: root.unwrap_or_else(|| own_root.to_owned()),
        read_only: sent.read_only,
        admission,
    })
}

/// A control server may give a session a part of what the node serves, and nothing else.
fn check_root(root: &Path, own_root: &Path) -> Result<(), WireError> {
    let is_plain = root
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if is_plain && root.starts_with(own_root) {
        return Ok(());
    }
    Err(WireError(format!(
        "the root {}, which is not beneath the root of this node, {}: start the node with a root that has both",
        root.display(),
        own_root.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_gets_no_root_outside_of_that_of_the_node() {
        let check = |root, own| check_root(Path::new(root), Path::new(own));
        check("/srv/data/group", "/srv/data").expect("beneath");
        check("/srv/data", "/srv/data").expect("the same");
        check("$HOME", "/").expect_err("relative");
        check("/home/$USER", "/").expect("beneath");
        for root in ["/srv", "/srv/database", "/srv/data/../secret", "/etc"] {
            let error = check(root, "/srv/data").expect_err(root).to_string();
            assert!(error.contains("/srv/data:"), "{error}");
        }
    }
}
