//! Two names of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::sync::lock;

/// The running nodes behind the names of a list. A node chooses a number at random when it starts, so that two names with the same
/// number are one node. It is used under the first of its names in the order of the alphabet.
#[derive(Debug, Clone, Default)]
pub struct Instances(Arc<Mutex<BTreeMap<Vec<u8>, BTreeSet<String>>>>);

/// A name of a node, as long as there is a connection to it.
#[derive(Debug)]
pub(crate) struct Claim {
    all: Instances,
    instance: Vec<u8>,
    name: String,
}

impl Instances {
    /// Notes that a node with this number was found behind a name.
    pub(crate) fn claim(&self, instance: &[u8], name: &str) -> Claim {
        /// A node has sent its number, which has 16 bytes.
        const LONGEST: usize = 64;
        let instance = instance[..instance.len().min(LONGEST)].to_vec();
        let mut all = lock(&self.0);
        let names = all.entry(instance.clone()).or_default();
        names.insert(name.to_owned());
        Claim {
            all: self.clone(),
            instance,
            name: name.to_owned(),
        }
    }
}

impl Claim {
    /// The name under which the node is used, if that is another one.
    pub(crate) fn other(&self) -> Option<String> {
        // A node that has told no number is not compared.
        if self.instance.iter().all(|byte| *byte == 0) {
            return None;
        }
        let all = lock(&self.all.0);
        let first = all.get(&self.instance)?.first()?;
        (*first != self.name).then(|| first.clone())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut all = lock(&self.all.0);
        if let Some(names) = all.get_mut(&self.instance) {
            names.remove(&self.name);
            if names.is_empty() {
                all.remove(&self.instance);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_used_under_its_first_name_while_that_one_is_connected() {
        let all = Instances::default();
        let second = all.claim(b"n1", "dtn2:7512");
        assert_eq!(second.other(), None);
        let first = all.claim(b"n1", "dtn1:7512");
        let elsewhere = all.claim(b"n2", "dtn0:7512");
        assert_eq!(first.other(), None);
        assert_eq!(second.other().as_deref(), Some("dtn1:7512"));
        assert_eq!(elsewhere.other(), None);
        drop(first);
        assert_eq!(second.other(), None);
        drop((second, elsewhere));
        assert!(lock(&all.0).is_empty());
    }

    #[test]
    fn nodes_without_a_number_are_different_ones() {
        let all = Instances::default();
        let claims = ["dtn1", "dtn2"].map(|name| all.claim(&[0; 16], name));
        assert!(claims.iter().all(|claim| claim.other().is_none()));
    }
}
