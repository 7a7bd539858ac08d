//! The limits of groups of users (`[[limit]]`): bandwidth and transfers that their sessions share.

mod places;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridhaul_transfer::BandwidthLimit;

use crate::config::{Config, Member};

pub(crate) use places::{Entered, Place, Places, Waiting};

/// The groups of the present configuration, by name.
#[derive(Debug, Default)]
pub(crate) struct GroupLimits {
    groups: Mutex<HashMap<String, Arc<Group>>>,
}

/// What the sessions of a group share.
#[derive(Debug)]
pub(crate) struct Group {
    bandwidth: Arc<BandwidthLimit>,
    pub(crate) places: Arc<Places>,
}

impl GroupLimits {
    pub(crate) fn new(config: &Config) -> Self {
        let groups = Self::default();
        groups.set(config);
        groups
    }

    /// Applies the limits of a configuration, also to running transfers. Limits that it does not have are lifted.
    pub(crate) fn set(&self, config: &Config) {
        let mut groups = self.groups();
        groups.retain(|name, group| {
            let stays = config.group_limits.iter().any(|limit| limit.name == *name);
            if !stays {
                group.set(None, None);
            }
            stays
        });
        for limit in &config.group_limits {
            let (rate, most) = (limit.bandwidth, limit.transfers);
            match groups.get(&limit.name) {
                Some(group) => group.set(rate, most),
                None => {
                    let group = Group {
                        bandwidth: BandwidthLimit::new(rate),
                        places: Places::new(most),
                    };
                    groups.insert(limit.name.clone(), Arc::new(group));
                }
            }
        }
    }

    /// The groups of a session, in the order of the configuration.
    pub(crate) fn of(&self, config: &Config, member: &Member<'_>) -> Vec<Arc<Group>> {
        if config.group_limits.is_empty() {
            return Vec::new();
        }
        let groups = self.groups();
        let limits = config.group_limits.iter();
        let own = limits.filter(|limit| limit.is_about(member));
        own.filter_map(|limit| groups.get(&limit.name).cloned())
            .collect()
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<String, Arc<Group>>> {
        // Every insertion is complete, so a panic elsewhere leaves no partial state.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Group {
    fn set(&self, rate: Option<u64>, most: Option<usize>) {
        self.bandwidth.set(rate);
        self.places.set(most);
    }
}

/// The limits of bandwidth of these groups.
pub(crate) fn bandwidth(groups: &[Arc<Group>]) -> Vec<Arc<BandwidthLimit>> {
    let limits = groups.iter().map(|group| Arc::clone(&group.bandwidth));
    limits.collect()
}
