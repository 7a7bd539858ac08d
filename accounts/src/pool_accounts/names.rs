//! The names of pools, of their accounts, and of leases.

use std::fmt::Write as _;

use super::LeaseError;

/// The maximum length of a file name.
const LONGEST_NAME: usize = 255;

/// The maximum length of the name of an account.
pub(super) const LONGEST_ACCOUNT: usize = 32;

/// Whether this can be the name of a pool.
pub(super) fn is_pool(pool: &str) -> bool {
    (1..LONGEST_ACCOUNT).contains(&pool.len())
        && pool
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        && !pool.starts_with('-')
}

/// The name of the lease of an identity. It begins with that of a slash, so it is never the name of an account.
pub(super) fn checked_lease_name(identity: &str) -> Result<String, LeaseError> {
    if !identity.starts_with('/') {
        return Err(LeaseError::Identity);
    }
    let name = lease_name(identity);
    match name.len() > LONGEST_NAME {
        true => Err(LeaseError::IdentityTooLong),
        false => Ok(name),
    }
}

/// Whether an account is one of a pool: the pool's name and a number. `.atlas` must not lead to `atlasprd001`.
pub(super) fn is_of_pool(account: &str, pool: &str) -> bool {
    let number = account.strip_prefix(pool);
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The name of a lease.
pub(super) fn lease_name(identity: &str) -> String {
    let mut name = String::with_capacity(identity.len() * 2);
    for byte in identity.bytes() {
        if byte.is_ascii_alphanumeric() {
            name.push(char::from(byte.to_ascii_lowercase()));
        } else {
            // Writing to a string does not fail.
            let _ = write!(name, "%{byte:02x}");
        }
    }
    name
}
