//! Why a text is no location.

/// A text that is no location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The scheme is none of those that this program has.
    #[error("'{0}': the scheme must be gsiftp, ftps, ftp, sshftp or file")]
    Scheme(String),
    /// A `file` URL names another host or no absolute path.
    #[error("'{0}': a file URL is file:/PATH or file:///PATH, with an absolute path")]
    File(String),
    /// The host is missing or malformed.
    #[error(
        "'{0}': a URL is SCHEME://[USER@]HOST[:PORT]/PATH, with brackets around an IPv6 address"
    )]
    Host(String),
    /// There is a password. Other users see command lines.
    #[error(
        "a password in a URL is seen by other users of this machine: leave it out, and give --password-file FILE"
    )]
    Password,
    /// As [`Self::Encoding`]. The message does not have the password.
    #[error(
        "the password in a URL: after % come two hexadecimal digits, not 00; write % itself as %25"
    )]
    PasswordEncoding,
    /// The password ends a command.
    #[error("the password in a URL has the end of a line, which FTP cannot send")]
    PasswordUnsendable,
    /// It is a file of this machine.
    #[error("{0}: not the URL of a server")]
    NoServer(String),
    /// The path is too long, or has characters that end a command.
    #[error("{0}: a path that FTP cannot send")]
    Unsendable(String),
    /// `%` is not followed by two hexadecimal digits, or stands for NUL.
    #[error("'{0}': after % come two hexadecimal digits, not 00; write % itself as %25")]
    Encoding(String),
}
