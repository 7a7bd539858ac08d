//! The values of options.

use std::ffi::OsString;

use super::error::GucError;
use super::urls::text;

/// The values in their order, an error if there are no more. Names of files need not be UTF-8.
pub(super) type Values<'a> = dyn FnMut() -> Result<OsString, GucError> + 'a;

/// The next value, of an option that names no file.
pub(super) fn next_text(values: &mut Values<'_>) -> Result<String, GucError> {
    values().map(|word| text(&word))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::super::Request;
    use super::*;

    #[test]
    fn names_of_files_need_not_be_text() {
        let name = || OsString::from_vec(b"/a\xe9:/b".to_vec());
        for option in ["-f", "-df", "-do", "-data-cred", "-cred"] {
            let request = Request::parse(&[option.into(), name()]).expect("valid");
            let [source, destination] = request.end_options();
            let proxies = [source.proxy, destination.proxy];
            let options = [&request.list_file, &request.dump_file, &request.plan];
            let mut files = options
                .into_iter()
                .chain([&request.data_credential])
                .chain(&proxies);
            assert!(files.any(|file| *file == Some(name().into())), "{option}");
        }
    }
}
