//! Keys as OpenSSL writes them.

use std::process::Command;

use aws_lc_rs::signature::{self, UnparsedPublicKey};

use super::*;

fn openssl(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl")
        .args(arguments)
        .output()
        .expect("openssl runs");
    assert!(output.status.success(), "openssl {arguments:?}");
    output.stdout
}

#[test]
fn each_form_that_openssl_writes_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let commands: [&[&str]; 4] = [
        &["genpkey", "-algorithm", "RSA", "-out"],
        &["genrsa", "-traditional", "-out"],
        &["ecparam", "-name", "prime256v1", "-genkey", "-out"],
        &["genpkey", "-algorithm", "ED25519", "-out"],
    ];
    for (number, command) in commands.iter().enumerate() {
        let path = at(&format!("{number}.pem"));
        openssl(&[*command, &[path.as_str()]].concat());
        let pem = std::fs::read(&path).expect("the key");
        let key = PrivateKey::from_pem(&pem).expect("a key that we use");
        let public = openssl(&["pkey", "-in", &path, "-pubout", "-outform", "DER"]);
        assert_eq!(key.public_key_info(), public, "{command:?}");
        key.sign(b"message").expect("a signature");
        assert!(key.exported().is_none(), "{command:?}");
        let key = PrivateKey::exportable_from_pem(&pem).expect("a key that we use");
        let exported = key.exported().expect("it may leave");
        let restored = PrivateKey::from_exported(exported).expect("the same key");
        assert_eq!(restored.public_key_info(), public, "{command:?}");
        assert_eq!(restored.exported(), Some(exported));
    }
}

/// Decrypts with a passphrase.
fn decrypt(pem: &[u8], passphrase: &str) -> Result<PrivateKey, KeyError> {
    PrivateKey::from_pem_with(pem, || Ok(Zeroizing::new(passphrase.as_bytes().to_vec())))
}

#[test]
fn encrypted_keys_need_their_passphrase() {
    let directory = tempfile::tempdir().expect("a directory");
    let plain = directory.path().join("plain").display().to_string();
    openssl(&[
        "genpkey",
        "-algorithm",
        "EC",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-out",
        &plain,
    ]);
    let public = openssl(&["pkey", "-in", &plain, "-pubout", "-outform", "DER"]);
    for form in [
        &[][..],
        &["-v2", "aes-128-cbc"],
        &["-v2", "aes-192-cbc", "-v2prf", "hmacWithSHA512"],
        &["-v2", "des3"],
        &[
            "-v2",
            "aes-256-cbc",
            "-v2prf",
            "hmacWithSHA1",
            "-iter",
            "20000",
        ],
    ] {
        let command = ["pkcs8", "-topk8", "-in", &plain, "-passout", "pass:secret"];
        let pem = openssl(&[&command, form].concat());
        let key = decrypt(&pem, "secret").expect("its passphrase");
        assert_eq!(key.public_key_info(), public, "{form:?}");
        for wrong in ["", "Secret", "secret "] {
            assert_eq!(decrypt(&pem, wrong).err(), Some(KeyError::WrongPassphrase));
        }
        for read in [PrivateKey::from_pem, PrivateKey::exportable_from_pem] {
            assert_eq!(read(&pem).err(), Some(KeyError::Encrypted));
        }
    }
}

#[test]
fn keys_with_traditional_encryption_need_their_passphrase() {
    let directory = tempfile::tempdir().expect("a directory");
    let plain = directory.path().join("plain").display().to_string();
    for (program, make) in [
        ("rsa", &["genrsa", "-out"][..]),
        (
            "ec",
            &[
                "ecparam",
                "-name",
                "prime256v1",
                "-genkey",
                "-noout",
                "-out",
            ],
        ),
    ] {
        openssl(&[make, &[&plain]].concat());
        let public = openssl(&["pkey", "-in", &plain, "-pubout", "-outform", "DER"]);
        for cipher in ["-des3", "-aes128", "-aes192", "-aes256"] {
            let form: &[&str] = match program {
                "rsa" => &["-traditional"],
                _ => &[],
            };
            let command = [program, cipher, "-in", &plain, "-passout", "pass:secret"];
            let pem = openssl(&[&command, form].concat());
            let text = String::from_utf8_lossy(&pem);
            assert!(text.contains("Proc-Type: 4,ENCRYPTED"), "{text}");
            let key = decrypt(&pem, "secret").expect("its passphrase");
            assert_eq!(key.public_key_info(), public, "{program} {cipher}");
            for wrong in ["", "Secret", "secret "] {
                let refused = decrypt(&pem, wrong).err();
                assert_eq!(
                    refused,
                    Some(KeyError::WrongPassphrase),
                    "{program} {cipher}"
                );
            }
            assert_eq!(PrivateKey::from_pem(&pem).err(), Some(KeyError::Encrypted));
        }
    }
}

#[test]
fn other_encryptions_are_refused_with_the_remedy() {
    let directory = tempfile::tempdir().expect("a directory");
    let plain = directory.path().join("plain").display().to_string();
    openssl(&["genrsa", "-out", &plain]);
    let topk8 = ["pkcs8", "-topk8", "-in", &plain, "-passout", "pass:secret"];
    let scrypt = openssl(&[&topk8[..], &["-scrypt"]].concat());
    let pkcs12 = openssl(&[&topk8[..], &["-v1", "PBE-SHA1-3DES"]].concat());
    let camellia = openssl(&[
        "genrsa",
        "-camellia256",
        "-passout",
        "pass:secret",
        "-traditional",
    ]);
    for pem in [camellia, scrypt, pkcs12] {
        let error = decrypt(&pem, "secret").expect_err("not supported");
        assert_eq!(error, KeyError::UnknownEncryption);
        assert!(error.to_string().contains("openssl pkcs8"), "{error}");
    }
    let cut = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let error = decrypt(cut.as_bytes(), "secret");
    assert!(matches!(error, Err(KeyError::Malformed(_))));
}

#[test]
fn malformed_keys_are_refused() {
    for pem in [
        "",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIB\n",
        "-----BEGIN PRIVATE KEY-----\n!!!!\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    ] {
        assert!(
            matches!(
                PrivateKey::from_pem(pem.as_bytes()),
                Err(KeyError::Malformed(_))
            ),
            "{pem:?}"
        );
    }
}

#[test]
fn generated_keys_sign() {
    let key = PrivateKey::generate_ec().expect("a key");
    assert_eq!(key.signature_kind(), Ok(SignatureKind::EcdsaSha256));
    let signature = key.sign(b"message").expect("a signature");
    // The point is the end of the structure, 65 bytes uncompressed.
    let public = key.public_key_info();
    let point = &public[public.len() - 65..];
    UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_ASN1, point)
        .verify(b"message", &signature)
        .expect("it verifies");

    let key = PrivateKey::generate_rsa().expect("a key");
    assert_eq!(key.signature_kind(), Ok(SignatureKind::RsaSha256));
    assert_eq!(key.sign(b"message").expect("a signature").len(), 256);
    assert_eq!(format!("{key:?}"), "PrivateKey { .. }");
}
