//! How many descriptors the process may have.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit to what the process may raise it to: a session needs one descriptor, a transfer
/// some more, and the customary limit of 1024 is for programs that use select(2).
pub(crate) fn raise_descriptor_limit() -> rustix::io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_becomes_the_highest_there_is() {
        raise_descriptor_limit().expect("the process may");
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
