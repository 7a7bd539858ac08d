//! Options of globus-url-copy for the servers of one end.

use std::path::PathBuf;

use gridhaul_protocol::stack::StackSpec;

use super::site::{self, AfterLogin, Ends};
use super::urls::text;
use super::values::Values;
use super::{GucError, Request};
use crate::location::Location;
use crate::program::arguments::EndOptions;

/// Options for the servers of one end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OneEnd {
    credential: Option<PathBuf>,
    subject: Option<String>,
    stack: Option<StackSpec>,
}

impl Request {
    /// Takes an option for one end, or for both; whether it is one.
    pub(super) fn end_option(
        &mut self,
        name: &str,
        value: &mut Values<'_>,
    ) -> Result<bool, GucError> {
        let ends: &[usize] = match name {
            "s" | "subject" | "cred" => &[0, 1],
            "ss" | "source-subject" | "src-cred" | "sc" => &[0],
            "src-dcstack" | "source-data-channel-stack" => &[0],
            "ds" | "dest-subject" | "dst-cred" | "dc" => &[1],
            "dst-dcstack" | "dest-data-channel-stack" => &[1],
            _ => return Ok(false),
        };
        let value = value()?;
        for end in ends {
            let end = &mut self.ends[*end];
            if name.ends_with("stack") {
                let value = text(&value);
                let stack = StackSpec::parse(&value)
                    .map_err(|_| GucError::Stack(format!("-{name}"), value.clone()))?;
                end.stack = Some(stack);
            } else if name.ends_with("cred") || matches!(name, "sc" | "dc") {
                end.credential = Some(PathBuf::from(&value));
            } else {
                end.subject = Some(text(&value));
            }
        }
        Ok(true)
    }

    /// Takes an option that sends a command after the login; whether it is one.
    pub(super) fn site_option(
        &mut self,
        name: &str,
        value: &mut Values<'_>,
    ) -> Result<bool, GucError> {
        let forms = site::forms(name);
        if forms.is_empty() {
            return Ok(false);
        }
        let (option, value) = (format!("-{name}"), value()?);
        for form in forms {
            let after_login = AfterLogin::new(*form, &option, &value)?;
            self.after_login.push(after_login);
        }
        Ok(true)
    }

    /// Whether something holds for one end only.
    pub(super) fn has_ends(&self) -> bool {
        let [source, destination] = &self.ends;
        let mut after_login = self.after_login.iter();
        source != destination || after_login.any(|one| one.ends() != Ends::Both)
    }

    pub(super) fn end_options(&self) -> [EndOptions; 2] {
        let [of_source, of_destination] = site::commands(&self.after_login);
        let [source, destination] = &self.ends;
        [(source, of_source), (destination, of_destination)].map(|(end, site)| EndOptions {
            proxy: end.credential.clone(),
            subject: end.subject.clone(),
            stack: end.stack.clone(),
            site,
        })
    }

    /// The stack of the only server, if this machine is the other end of its data channels.
    pub(super) fn stack_here(&self) -> Option<&StackSpec> {
        match self.are_servers() {
            [true, false] => self.ends[0].stack.as_ref(),
            [false, true] => self.ends[1].stack.as_ref(),
            _ => None,
        }
    }

    /// Whether source and destination are servers.
    fn are_servers(&self) -> [bool; 2] {
        let is_server = |url: &str| matches!(Location::parse(url), Ok(Location::Remote(_)));
        match self.urls.as_slice() {
            [source, destination] => [is_server(source), is_server(destination)],
            // A list may have copies of all kinds.
            _ => [true, true],
        }
    }
}
