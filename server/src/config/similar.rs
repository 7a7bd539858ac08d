//! Names that were probably meant.

/// ` (did you mean 'NAME'?)`, if one of these names is near to what was written.
pub(crate) fn similar<'a>(
    written: &str,
    names: impl IntoIterator<Item = impl AsRef<str> + 'a>,
) -> String {
    /// Names are not compared with long texts: the time grows with both lengths.
    const LONGEST: usize = 64;

    if written.len() > LONGEST {
        return String::new();
    }
    let written = written.to_lowercase().replace('_', "-");
    let near = names.into_iter().filter_map(|name| {
        let name = name.as_ref();
        let distance = strsim::damerau_levenshtein(&written, &name.replace('_', "-"));
        // A short word is near to many others.
        (distance <= 1 + written.len() / 5).then(|| (distance, name.to_owned()))
    });
    match near.min() {
        Some((_, name)) => format!(" (did you mean '{name}'?)"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::similar;

    #[test]
    fn typing_errors_lead_to_the_name() {
        let names = ["max-connections", "max-transfers", "tcp", "rdma", "auto"];
        let meant = |written: &str| similar(written, names);
        assert_eq!(meant("rdam"), " (did you mean 'rdma'?)");
        assert_eq!(
            meant("max_connection"),
            " (did you mean 'max-connections'?)"
        );
        assert_eq!(meant("udt"), "");
        assert_eq!(meant(&"x".repeat(1000)), "");
    }
}
