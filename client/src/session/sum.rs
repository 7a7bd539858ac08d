//! Checksums in replies to `CKSM`.
//!
//! Two servers that answer with the same other words must not seem to have the same content.

use gridhaul_protocol::reply::Reply;

/// The digits of a checksum; `None` if the reply has something else.
pub(crate) fn of_reply(algorithm: &str, reply: &Reply) -> Option<String> {
    let text = reply.text();
    let text = text.trim();
    is_sum(algorithm, text).then(|| text.to_owned())
}

fn is_sum(algorithm: &str, text: &str) -> bool {
    /// Less is no checksum that could show a wrong copy.
    const LEAST: usize = 4;

    let is_hexadecimal = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = match algorithm.to_ascii_uppercase().as_str() {
        "MD5" => 32,
        "SHA1" => 40,
        "SHA224" => 56,
        "SHA256" => 64,
        "SHA384" => 96,
        "SHA512" => 128,
        // 32 bits: servers leave out zeros in front, or write them in decimal.
        "ADLER32" | "CRC32" | "CRC32C" | "CKSUM" => {
            return is_hexadecimal && (1..=10).contains(&text.len());
        }
        // An algorithm that only servers know.
        _ => return text.len() >= LEAST && text.bytes().all(|byte| byte.is_ascii_graphic()),
    };
    is_hexadecimal && text.len() == digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_are_no_checksums() {
        for (algorithm, text, expected) in [
            ("MD5", "9a0364b9e99bb480dd25e1f0284c8555", true),
            ("md5", "9A0364B9E99BB480DD25E1F0284C8555", true),
            ("MD5", "9a0364b9e99bb480dd25e1f0284c855", false),
            ("MD5", "9a0364b9e99bb480dd25e1f0284c855g", false),
            ("MD5", "", false),
            ("SHA256", "9a0364b9e99bb480dd25e1f0284c8555", false),
            ("ADLER32", "00620062", true),
            ("ADLER32", "6422626", true),
            ("ADLER32", "4294967295", true),
            ("ADLER32", "OK", false),
            ("ADLER32", "", false),
            ("X-SUM", "Zm9vYmFy", true),
            ("X-SUM", "Checksum done", false),
            ("X-SUM", "", false),
        ] {
            assert_eq!(is_sum(algorithm, text), expected, "{algorithm} {text}");
        }
    }
}
