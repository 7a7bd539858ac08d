//! Fuzz target: drivers of sessions that another machine describes, some of them from a sound value with changes.

use std::sync::{Arc, LazyLock};

use gridhaul_gsi::{ChannelSecurity, Gsi, Protection};
use gridhaul_security::credential::Credential;
use gridhaul_security::tls::TlsVersions;
use gridhaul_stack::{Driver as _, SessionValue};
use zeroize::Zeroizing;

use crate::fuzz_input::Input;
use crate::session_drivers::restore;

/// A sound value of `gsi`.
static SAMPLE: LazyLock<SessionValue> = LazyLock::new(|| {
    let certificate = include_bytes!("../security/samples/host.pem").as_slice();
    let key = include_bytes!("../security/samples/host.key").as_slice();
    let credential = Credential::of_session(&[certificate, key].concat()).expect("a sample");
    let driver = Gsi::new(ChannelSecurity {
        anchors: credential.chain().to_vec(),
        credential: Arc::new(credential),
        trust: Arc::default(),
        expected: "/DC=test/CN=Alice".to_owned(),
        protection: Protection::Private,
        versions: TlsVersions::default(),
    });
    driver.session_value().expect("it can be sent")
});

/// Restores a driver. What was restored can be sent on.
pub fn session_values(input: &[u8]) {
    let mut input = Input(input);
    let name = input.one_of(&["gsi", "gsi", "gsi", "ftps", "tcp", ""]);
    let bytes = if input.byte() % 2 == 0 {
        input.0.to_vec()
    } else {
        edited(SAMPLE.bytes(), &mut input)
    };
    let Ok(value) = SessionValue::new(name, Zeroizing::new(bytes)) else {
        return;
    };
    if let Ok(driver) = restore(&value, Arc::default, || None) {
        assert_eq!(driver.name(), value.name());
        driver.session_value().expect("it can be sent on");
    }
}

/// A sample that is cut or has other bytes at some places.
fn edited(sample: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let mut bytes = sample.to_vec();
    while !input.is_empty() {
        let place = usize::from(input.byte()) << 8 | usize::from(input.byte());
        let byte = input.byte();
        match bytes.get_mut(place) {
            Some(there) => *there = byte,
            None => bytes.truncate(place % sample.len()),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz_input::tests::over_arbitrary_bytes;

    #[test]
    fn other_bytes_than_a_drivers_are_no_panic() {
        // The sample without changes.
        session_values(&[0, 1]);
        over_arbitrary_bytes(2000, 40, session_values);
    }
}
