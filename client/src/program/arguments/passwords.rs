//! Whom the password of a file is for.

use std::path::PathBuf;

use super::LoginArguments;

/// Who has set the file with a password.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::program) enum PasswordOf {
    #[default]
    CommandLine,
    /// A `[[host]]` of a configuration file, and the user that it names.
    Section(Option<String>),
}

/// A password that is not sent, because it may be that of another user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::program) enum NotForUser {
    CommandLine,
    Section { file: String, owner: Option<String> },
}

impl LoginArguments {
    /// The file with the password of `user` at a server.
    ///
    /// # Errors
    ///
    /// When there is one that may be for another user.
    pub(in crate::program) fn password_file_for(
        &self,
        user: &str,
    ) -> Result<Option<&PathBuf>, NotForUser> {
        let Some(file) = &self.password_file else {
            return Ok(None);
        };
        match &self.password_of {
            // It may be the password of another server of the command.
            PasswordOf::CommandLine if self.has_own_user => Err(NotForUser::CommandLine),
            PasswordOf::CommandLine => Ok(Some(file)),
            PasswordOf::Section(Some(owner)) if owner == user => Ok(Some(file)),
            PasswordOf::Section(None) if !self.has_own_user => Ok(Some(file)),
            PasswordOf::Section(owner) => Err(NotForUser::Section {
                file: file.display().to_string(),
                owner: owner.clone(),
            }),
        }
    }
}
