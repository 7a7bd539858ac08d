//! `SITE`: the commands that only GridFTP servers have.

use gridhaul_protocol::command::{
    AlgorithmName, Checksum, Command, SiteCommand, StackRequest, StoreAttributes, Text,
};
use gridhaul_protocol::help;
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::Relabel;

use super::checksum::unknown_algorithm;
use super::control::Control;
use super::names::ok;
use super::{End, Session, User, replies};
use crate::telemetry::Event;

impl Session {
    pub(super) async fn site(
        &mut self,
        control: &mut Control,
        user: &User,
        command: SiteCommand,
    ) -> Result<Reply, End> {
        Ok(match command {
            SiteCommand::Chmod { mode, path } => {
                return self
                    .on_path(control, user, Some(&path), move |files, path| {
                        let change = Relabel::Mode(u32::from(mode.bits()));
                        files.node.relabel(path.as_path(), change).map(|()| ok())
                    })
                    .await;
            }
            SiteCommand::Chgrp { group, path } => {
                return self
                    .on_path(control, user, Some(&path), move |files, path| {
                        let change = Relabel::Group(group.as_str());
                        files.node.relabel(path.as_path(), change).map(|()| ok())
                    })
                    .await;
            }
            SiteCommand::Utime { modified, path } => {
                return self
                    .set_modified(control, user, modified, &path, ok())
                    .await;
            }
            SiteCommand::Rdel(path) => {
                return self
                    .on_path(control, user, Some(&path), |files, path| {
                        let cancelled = || files.cancel.is_cancelled();
                        files
                            .storage
                            .remove_tree(path.as_path(), &cancelled)
                            .map(|()| ok())
                    })
                    .await;
            }
            SiteCommand::Trnc { length, path } => {
                return self.shorten(control, user, length, &path).await;
            }
            SiteCommand::SymlinkTo(link) => return self.symlink(control, user, &link).await,
            SiteCommand::SymlinkFrom(target) => {
                self.negotiated.symlink_from(target);
                Reply::new(350, "OK. Send SITE SYMLINKTO with symlink name.")
            }
            SiteCommand::SetNetStack(request) => self.set_net_stack(user, &request),
            SiteCommand::GetNetStack => self.net_stack(),
            SiteCommand::SetDiskStack(request) => disk_stack(&request),
            SiteCommand::StorAttr(attributes) => self.set_store_attributes(attributes),
            SiteCommand::TaskId(task) => {
                self.task_id = Some(task.as_str().chars().take(MOST_OF_A_TASK_ID).collect());
                ok()
            }
            SiteCommand::ClientInfo(info) => {
                let event = Event::ClientInfo {
                    session: self.id,
                    info: info.as_str(),
                };
                self.shared.journal.publish(&event);
                ok()
            }
            SiteCommand::Whoami => Reply::new(200, &user.name),
            SiteCommand::Version => Reply::new(200, crate::version::VERSION),
            SiteCommand::Help(topic) => help::reply(topic.as_ref().map(Text::as_str)),
            SiteCommand::BufferSize { .. } => match self.negotiated.settle(&Command::Site(command))
            {
                Some(settled) => settled.reply,
                None => Reply::new(501, "Syntax error in parameters or arguments."),
            },
            SiteCommand::Dsi(_) => Reply::new(500, "no such DSI"),
            SiteCommand::Upas(_) | SiteCommand::Uprt(_) => {
                replies::stack_error("udt driver not whitelisted")
            }
            // It can only add rights, and no user needs more than the account has.
            SiteCommand::AuthzAssert(_) => ok(),
            // To say OK would promise a protection that is not given.
            SiteCommand::Restrict(_)
            | SiteCommand::Chroot(_)
            | SiteCommand::Sharing(_)
            | SiteCommand::Http(_)
            | SiteCommand::Fault(_) => Reply::new(500, "Command not supported."),
        })
    }

    /// What data channels run over, and what their drivers told of the last transfer's.
    fn net_stack(&self) -> Reply {
        let stack = self.own_stack();
        let last = &self.last_channels;
        let mut lines = vec![format!("stack={stack}")];
        if last.count > 0 {
            lines.push(format!("channels={}", last.count));
        }
        if let Some(movement) = &last.movement {
            lines.push(format!("way={}", movement.way));
            lines.push(format!("why={}", movement.reason));
        }
        lines.extend(last.details.as_slice().iter().map(ToString::to_string));
        Reply::spaced(
            250,
            "Data channels, and those of the last transfer:",
            lines,
            "End.",
        )
    }

    /// `SCKS`.
    pub(super) fn expect_checksum(
        &mut self,
        algorithm: &AlgorithmName,
        checksum: &Checksum,
    ) -> Reply {
        if !is_known(algorithm) {
            return unknown_algorithm();
        }
        self.negotiated
            .expect_checksum(algorithm.clone(), checksum.clone());
        Reply::new(200, "OK.")
    }

    fn set_store_attributes(&mut self, attributes: StoreAttributes) -> Reply {
        if attributes
            .checksum
            .as_ref()
            .is_some_and(|(algorithm, _)| !is_known(algorithm))
        {
            return unknown_algorithm();
        }
        self.negotiated.set_store_attributes(attributes);
        ok()
    }

    /// `SITE TRNC`.
    async fn shorten(
        &mut self,
        control: &mut Control,
        user: &User,
        length: u64,
        path: &PathArgument,
    ) -> Result<Reply, End> {
        self.on_path(control, user, Some(path), move |files, path| {
            if files.storage.stat(path.as_path())?.size < length {
                return Ok(Reply::new(
                    500,
                    "Current size is smaller than truncate size.",
                ));
            }
            files
                .storage
                .truncate(path.as_path(), length)
                .map(|()| ok())
        })
        .await
    }

    /// `SITE SYMLINKTO`. The link says what the client wrote; where it leads is seen when it is used.
    async fn symlink(
        &mut self,
        control: &mut Control,
        user: &User,
        link: &PathArgument,
    ) -> Result<Reply, End> {
        let target = match self.negotiated.take_symlink_from() {
            Ok(target) => target,
            Err(refusal) => return Ok(refusal.reply()),
        };
        self.on_path(control, user, Some(link), move |files, link| {
            files
                .storage
                .symlink(target.as_path(), link.as_path())
                .map(|()| ok())
        })
        .await
    }
}

/// What fits on a line of the transfer log.
const MOST_OF_A_TASK_ID: usize = 200;

/// Files have one way to be stored.
fn disk_stack(request: &StackRequest) -> Reply {
    let drivers = match request {
        StackRequest::Default => return ok(),
        StackRequest::Drivers(text) => StackSpec::parse(text.as_str()),
    };
    let reason = match drivers {
        Ok(stack) => match stack.drivers.iter().find(|driver| driver.name != "file") {
            Some(driver) => format!("{} driver not whitelisted", driver.name),
            None => return ok(),
        },
        Err(error) => error.to_string(),
    };
    Reply::coded(
        500,
        "Setting filesystem driver stack failed.",
        [reason],
        "End.",
    )
}

fn is_known(algorithm: &AlgorithmName) -> bool {
    algorithm.as_str().parse::<ChecksumAlgorithm>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_stored_in_one_way() {
        let request = |text: &str| StackRequest::Drivers(Text::new(text).expect("a text"));
        assert_eq!(disk_stack(&StackRequest::Default).code(), 250);
        assert_eq!(disk_stack(&request("file")).code(), 250);
        let refused = disk_stack(&request("popen:argv=#cat"));
        assert_eq!(refused.code(), 500);
        let text = String::from_utf8(refused.encode()).expect("ASCII");
        assert!(text.contains("popen driver not whitelisted"), "{text}");
    }
}
