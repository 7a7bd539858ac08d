//! The password hash of a user: salt, cost parameters and digest (Argon2id, PHC string format).

use argon2::password_hash::phc::{Output, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Params, Version};

use super::memory::Memory;

/// A parsed password hash.
#[derive(Clone)]
pub(super) struct Secret {
    version: Version,
    params: Params,
    salt: Salt,
    output: Output,
}

/// The cost of a check: memory in KiB, passes, lanes and bytes of the hash.
pub(super) type Work = (u32, u32, u32, usize);

impl Secret {
    /// Parses a hash with a bounded cost: at most 1 GiB and 64 passes.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let hash = PasswordHash::new(text)
            .map_err(|_| "the hash is not in the form $argon2id$v=19$...")?;
        if hash.algorithm.as_str() != "argon2id" {
            return Err("the hash is not argon2id's");
        }
        let params = Params::try_from(&hash).map_err(|_| "the hash has wrong parameters")?;
        if params.m_cost() > 1 << 20 || params.t_cost() > 64 || params.p_cost() > 64 {
            return Err("the hash costs too much: at most m=1048576, t=64, p=64");
        }
        let version = hash.version.map_or(Ok(Version::V0x13), Version::try_from);
        Ok(Self {
            version: version.map_err(|_| "the hash is of an unknown version of argon2")?,
            params,
            salt: hash.salt.ok_or("the hash has no salt")?,
            output: hash.hash.ok_or("there is no hash after the salt")?,
        })
    }

    /// The hash that unknown names are checked against where the file has no users, so that the time of a check does not tell
    /// whether a name exists.
    pub(super) fn decoy() -> Self {
        const BYTES: [u8; Params::DEFAULT_OUTPUT_LEN] = [0; Params::DEFAULT_OUTPUT_LEN];
        let salt = Salt::new(&BYTES[..16]);
        let output = Output::new(&BYTES);
        Self {
            version: Version::default(),
            params: Params::default(),
            salt: salt.expect("a salt may have 16 bytes"),
            output: output.expect("a hash may have 32 bytes"),
        }
    }

    pub(super) fn work(&self) -> Work {
        let (params, bytes) = (&self.params, self.output.len());
        (params.m_cost(), params.t_cost(), params.p_cost(), bytes)
    }

    /// The hash.
    pub(super) fn output(&self) -> &[u8] {
        self.output.as_bytes()
    }

    /// Whether this is the password. Takes some 10 ms and some MB ([`Secret::work`]).
    pub(super) fn matches(&self, password: &[u8], memory: &mut Memory) -> bool {
        let argon2 = Argon2::new(Algorithm::Argon2id, self.version, self.params.clone());
        let found = memory.lend(self.params.block_count(), |blocks| {
            Output::init_with(self.output.len(), |found| {
                argon2
                    .hash_password_into_with_memory(password, &self.salt, found, blocks)
                    .map_err(|_| argon2::password_hash::phc::Error::OutputSize {
                        provided: core::cmp::Ordering::Less,
                        expected: 0,
                    })
            })
        });
        // The comparison takes constant time.
        found.is_ok_and(|found| found == self.output)
    }
}
