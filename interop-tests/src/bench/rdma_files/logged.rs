//! The times of transfers in the log of a server.

/// The seconds of each transfer of a file, in order. Listings are no such transfers.
pub(super) fn seconds(log: &str) -> Vec<f64> {
    let lines = log.lines().filter(|line| is_transfer(line));
    let seconds = lines.map(|line| {
        let mut words = line.split_whitespace();
        words.find_map(|word| word.strip_prefix("seconds=")?.parse().ok())
    });
    seconds.flatten().collect()
}

fn is_transfer(line: &str) -> bool {
    let verbs = ["verb=\"RETR\"", "verb=\"STOR\""];
    line.contains("transfer finished") && verbs.iter().any(|verb| line.contains(verb))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_of_files_have_their_seconds() {
        let log = "\
2026-11-24T22:00:00Z  INFO gridhaul_server::telemetry::journal: logged in session=1 user=\"a\"
2026-11-24T22:00:00Z  INFO gridhaul_server::telemetry::journal: transfer finished session=1 verb=\"RETR\" path=\"/x\" bytes=7 seconds=1.25 channels=1
2026-11-24T22:00:01Z  INFO gridhaul_server::telemetry::journal: transfer finished session=1 verb=\"MLSD\" path=\"/\" bytes=7 seconds=3 channels=1
2026-11-24T22:00:02Z  INFO gridhaul_server::telemetry::journal: transfer finished session=1 verb=\"STOR\" path=\"/y\" bytes=7 seconds=2 channels=1
";
        assert_eq!(seconds(log), [1.25, 2.0]);
        assert_eq!(seconds(""), [0.0; 0]);
    }
}
