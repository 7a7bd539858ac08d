//! Several nodes over one directory that take part in one transfer, connected as a session connects them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_transfer::{
    CancelReason, Companions, NodeSession, Outcome, Plan, Role, RunningTransfer, Share, Task,
    TransferError,
};

use crate::site::{Settings, Site, Started};

/// Nodes over one directory. Node `i` of `n` serves every `n`th stripe from `i` on.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Site>,
    stripes: usize,
}

impl Cluster {
    /// For transfers with this many stripes, at least one for each node.
    pub(crate) fn new(nodes: usize, stripes: usize) -> Self {
        Self::over(&Site::new(Settings::default()), nodes, stripes)
    }

    /// Over the directory of `site`.
    pub(crate) fn over(site: &Site, nodes: usize, stripes: usize) -> Self {
        let nodes = (0..nodes).map(|_| site.beside(Settings::default()));
        Self {
            nodes: nodes.collect(),
            stripes,
        }
    }

    /// The stripes of a node.
    pub(crate) fn stripes(&self, node: usize) -> Vec<usize> {
        (node..self.stripes).step_by(self.nodes.len()).collect()
    }

    /// Listens on all nodes; returns the address of each stripe.
    pub(crate) fn listen(&self) -> Vec<SocketAddr> {
        let mut listeners: Vec<_> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(node, site)| site.listen(self.stripes(node).len()).into_iter())
            .collect();
        let count = listeners.len();
        (0..self.stripes)
            .map(|stripe| listeners[stripe % count].next().expect("one for each"))
            .collect()
    }

    /// Connects each node to the peers of its stripes.
    pub(crate) fn connect(&self, peers: &[SocketAddr]) {
        for (node, site) in self.nodes.iter().enumerate() {
            site.connect(
                self.stripes(node)
                    .iter()
                    .map(|&stripe| peers[stripe])
                    .collect(),
            );
        }
    }

    /// The plan of a node, with its share of `plan`.
    pub(crate) fn plan(&self, node: usize, plan: &Plan, role: Role) -> Plan {
        Plan {
            share: Some(Share {
                stripes: self.stripes(node),
                total: self.stripes,
                role,
            }),
            ..plan.clone()
        }
    }

    /// Starts sending on a node.
    pub(crate) fn send_from(&self, node: usize, plan: &Plan) -> Started {
        self.nodes[node].start(self.plan(node, plan, Role::Member))
    }

    /// Sends with all nodes.
    pub(crate) fn send(&self, plan: &Plan) -> Vec<Outcome> {
        let count = self.nodes.len();
        let started: Vec<_> = (0..count).map(|node| self.send_from(node, plan)).collect();
        started.iter().map(Started::finish).collect()
    }

    /// Starts receiving on all nodes; the first one is the lead.
    pub(crate) fn receive(&self, plan: &Plan) -> Reception {
        let members = 1..self.nodes.len();
        let members = Arc::new(Members {
            plans: members
                .map(|node| {
                    let plan = self.plan(node, plan, Role::Member);
                    (self.nodes[node].session.clone(), plan)
                })
                .collect(),
            state: Mutex::default(),
            waiting: Mutex::default(),
        });
        let lead = Role::Lead(members.clone());
        let lead = self.nodes[0].start(self.plan(0, plan, lead));
        Reception { lead, members }
    }
}

/// A transfer that several nodes receive.
pub(crate) struct Reception {
    pub(crate) lead: Started,
    pub(crate) members: Arc<Members>,
}

impl Reception {
    /// Waits for the end of the lead; if it has failed, cancels the others, as a session does. Returns the outcomes of all
    /// nodes, and what they have stored.
    pub(crate) fn finish(&self) -> (Vec<Outcome>, RangeSet) {
        let lead = self.lead.finish();
        let mut stored = self.lead.transfer.take_received();
        if lead.result.is_err() {
            self.members.cancel();
        }
        // Returns at once if the lead has waited.
        let _ = self.members.wait();
        let mut state = self.members.state();
        stored.extend_from(&state.stored);
        let mut outcomes = vec![lead];
        outcomes.append(&mut state.ended);
        (outcomes, stored)
    }

    /// As [`Self::finish`]; expects that all nodes succeed.
    pub(crate) fn expect_success(&self) -> (Vec<Outcome>, RangeSet) {
        let (outcomes, stored) = self.finish();
        for outcome in &outcomes {
            outcome.result.as_ref().expect("received");
        }
        (outcomes, stored)
    }

    /// As [`Self::finish`]; expects that the lead fails.
    pub(crate) fn expect_failure(&self) -> (TransferError, RangeSet) {
        let (mut outcomes, stored) = self.finish();
        let lead = outcomes.swap_remove(0);
        (lead.result.expect_err("it fails"), stored)
    }
}

/// The members of a transfer, as its lead sees them.
pub(crate) struct Members {
    plans: Vec<(Arc<dyn NodeSession>, Plan)>,
    state: Mutex<State>,
    /// Held by the thread that waits for them.
    waiting: Mutex<()>,
}

#[derive(Default)]
pub(crate) struct State {
    /// The path from the lead.
    pub(crate) path: Option<PathBuf>,
    pub(crate) transfers: Vec<Arc<dyn RunningTransfer>>,
    /// Those whose end is not awaited yet.
    running: Vec<Started>,
    ended: Vec<Outcome>,
    stored: RangeSet,
}

impl Members {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test has failed here")
    }

    fn cancel(&self) {
        for transfer in &self.state().transfers {
            transfer.cancel(CancelReason::Abort);
        }
    }
}

impl Companions for Members {
    fn opened(&self, path: &Path) {
        let mut state = self.state();
        assert!(state.path.replace(path.to_owned()).is_none(), "only once");
        for (session, plan) in &self.plans {
            let mut plan = plan.clone();
            let Task::ReceiveFile { path: place, .. } = &mut plan.task else {
                panic!("only receivers have a lead");
            };
            *place = path.to_owned();
            let member = Started::on(&**session, plan);
            state.transfers.push(member.transfer.clone());
            state.running.push(member);
        }
    }

    fn wait(&self) -> Result<RangeSet, TransferError> {
        let _waiting = self.waiting.lock().expect("no test has failed here");
        let running = std::mem::take(&mut self.state().running);
        let mut failure = None;
        for member in running {
            let mut outcome = member.finish();
            let mut state = self.state();
            state.stored.extend_from(&member.transfer.take_received());
            if let Err(error) = std::mem::replace(&mut outcome.result, Ok(())) {
                failure.get_or_insert(error);
            }
            state.ended.push(outcome);
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(self.state().stored.clone()),
        }
    }
}
