//! The limit of open descriptors.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit. A session needs one descriptor and a transfer some more; the usual soft limit of
/// 1024 is for programs that use select(2).
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
