//! `-help` and `-version`. globus-url-copy 10.12 prints both on standard error, and so scripts read them there.

use super::Shown;
use crate::program::output::write_plain;

/// The version of globus-url-copy whose options these are.
const OF_GLOBUS: &str = "10.12";

/// The options. A test compares them with those that are taken.
const HELP: &str = "
globus-url-copy [options] <sourceURL> <destURL>
globus-url-copy [options] -f <filename>

This is gridhaul with the options of globus-url-copy. URLs are those of gsiftp, ftp, ftps and sshftp servers, and file:/// or paths
of this machine; - is standard input or output. A directory ends with a slash. The last component of a source may be a pattern.
The page about the client in the documentation of gridhaul lists the differences.

OPTIONS
  -help | -usage
       Print help
  -version | -versions
       Print the version
  -f <filename>
       Copy the files of a list: a source and a destination on each line
  -df <filename> | -dumpfile <filename>
       Write what was not copied to this list; the next run begins with it
  -do <filename> | -dump-only <filename>
       Copy nothing; write what would be copied to this list
  -r | -recurse
       Copy directories with all that they contain
  -cd | -create-dest
       Make the directory of the destination
  -rp | -relative-paths
       Paths of servers begin at the home directory of the user
  -list <URL>
       List a directory of a server
  -sync
       Copy only files that differ
  -sync-level <number>
       0: copies that do not exist, 1: other sizes, 2: also older copies (the default), 3: other checksums
  -verify-checksum
       Compare the checksums of both ends after each file
  -checksum-alg <algorithm>
       The checksum; the default is MD5
  -off <bytes> | -partial-offset <bytes>
       Copy the file from this byte on
  -len <bytes> | -partial-length <bytes>
       Copy at most so many bytes
  -p <number> | -parallel <number>
       Connections of each file
  -cc <number> | -concurrency <number>
       Files that are copied at a time
  -fast
       MODE E for all files
  -stripe | -striped
       MODE E, and all data nodes of servers
  -notpt | -no-third-party-transfers
       Copies between two servers go through this machine
  -rst | -restart
       Try failed files again
  -rst-retries <number> | -restart-retries <number>
       How often; 0 is never. The default is 5
  -stall-timeout <seconds> | -st <seconds>
       Without a byte for so long, a transfer fails. The default is 600
  -t <seconds>
       The longest wait for a connection or a reply
  -s <subject> | -subject <subject>
       The subject that the certificates of both servers must have
  -ss <subject> | -source-subject <subject>
       That of the source
  -ds <subject> | -dest-subject <subject>
       That of the destination
  -cred <file>
       The proxy, or the certificate with its key
  -src-cred <file> | -sc <file>
       That for the source
  -dst-cred <file> | -dc <file>
       That for the destination
  -data-cred <file>
       The credential of data channels; auto makes a temporary one
  -nodcau | -no-data-channel-authentication
       Data channels are not authenticated
  -dcsafe | -data-channel-safe | -dcpriv | -data-channel-private
       Encrypt data channels
  -dcstack <stack> | -data-channel-stack <stack>
       The driver stack of data channels
  -src-dcstack <stack> | -source-data-channel-stack <stack>
       That of the source
  -dst-dcstack <stack> | -dest-data-channel-stack <stack>
       That of the destination
  -udt
       The driver udt, between two servers that have it
  -fsstack <stack> | -file-system-stack <stack>
       The driver stack for the disks of servers
  -src-fsstack <stack> | -source-file-system-stack <stack>
       That of the source
  -dst-fsstack <stack> | -dest-file-system-stack <stack>
       That of the destination
  -pipe <command line>
       Both of the next two
  -src-pipe <command line> | -SP <command line>
       The data is the output of this command on the source
  -dst-pipe <command line> | -DP <command line>
       The data is the input of this command on the destination
  -aa <file> | -authz-assert <file>
       The assertions in this file are for both servers
  -saa <file> | -src-authz-assert <file>
       They are for the source
  -daa <file> | -dst-authz-assert <file>
       They are for the destination
  -q | -quiet
       Print errors only
  -v | -verbose | -vb | -verbose-perf
       Print a line for each file
  -dbg | -debugftp
       Print the commands and replies of control channels on standard error, without passwords

Without effect, because it is always so or is chosen by the kernel or the servers: -a | -ascii, -b | -binary,
-c | -continue-on-error, -pp | -pipeline, -ipv6, -dp | -delayed-pasv, -no-g2 | -nogridftp2, -gridftp2,
-cache-aa | -cache-authz-assert, -cache-saa | -cache-src-authz-assert, -cache-daa | -cache-dst-authz-assert;
and with a value: -tcp-bs | -tcp-buffer-size, -bs | -block-size, -sbs | -striped-block-size,
-rst-interval | -restart-interval, -rst-timeout | -restart-timeout
";

/// Prints what was asked for.
pub(super) fn print(shown: Shown) {
    write_plain(&match shown {
        Shown::Help => format!("{HELP}\n"),
        Shown::Version => version(),
    });
}

/// Begins as the line of globus-url-copy.
fn version() -> String {
    let own = env!("CARGO_PKG_VERSION");
    format!("globus-url-copy: {OF_GLOBUS} (gridhaul {own})\n")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::{GucError, Request};
    use super::*;

    /// All options of `globus-url-copy -help`, version 10.12.
    const ALL: &str = "help usage version versions c continue-on-error a ascii b binary f cd create-dest r recurse fast t q quiet \
        v verbose vb verbose-perf dbg debugftp rst restart rst-retries rst-interval rst-timeout stall-timeout st df dumpfile \
        do dump-only rp relative-paths s subject ss source-subject ds dest-subject tcp-bs tcp-buffer-size bs block-size p parallel \
        notpt no-third-party-transfers nodcau no-data-channel-authentication dcsafe data-channel-safe dcpriv data-channel-private \
        off partial-offset len partial-length list stripe striped-block-size sbs ipv6 udt no-g2 nogridftp2 dp delayed-pasv \
        mn module-name mp module-parameters smn src-module-name smp src-module-parameters dmn dst-module-name \
        dmp dst-module-parameters aa authz-assert saa src-authz-assert daa dst-authz-assert cache-aa cache-authz-assert \
        cache-saa cache-src-authz-assert cache-daa cache-dst-authz-assert pipeline pp concurrency cc nl-bottleneck nlb \
        src-pipe SP dst-pipe DP pipe dcstack data-channel-stack fsstack file-system-stack src-dcstack source-data-channel-stack \
        src-fsstack source-file-system-stack dst-dcstack dest-data-channel-stack dst-fsstack dest-file-system-stack cred \
        src-cred sc dst-cred dc data-cred af alias-file sync sync-level checksum-alg verify-checksum";

    /// Those that are refused, as docs/client.md says.
    const REFUSED: &str = "mn module-name mp module-parameters smn src-module-name smp src-module-parameters \
        dmn dst-module-name dmp dst-module-parameters nl-bottleneck nlb af alias-file";

    fn names(list: &str) -> Vec<&str> {
        list.split_whitespace().collect()
    }

    /// The options that the help names.
    fn helped() -> Vec<&'static str> {
        let words = HELP.split([' ', '\n', ',', ';']);
        let options = words.filter_map(|word| word.strip_prefix('-'));
        options.filter(|name| !name.is_empty()).collect()
    }

    fn is_taken(name: &str) -> bool {
        // A value that fits most of them; others are refused for it.
        let words = [format!("-{name}"), "1".to_owned()].map(OsString::from);
        let request = Request::parse(&words);
        !matches!(request, Err(GucError::Option(_)))
    }

    #[test]
    fn each_option_of_globus_url_copy_is_taken_or_known_to_be_refused() {
        for name in names(ALL) {
            let is_refused = names(REFUSED).contains(&name);
            assert_eq!(is_taken(name), !is_refused, "-{name}");
        }
        assert!(!is_taken("nosuch"));
    }

    #[test]
    fn the_help_has_each_option_that_is_taken() {
        for name in names(ALL) {
            let is_helped = helped().contains(&name);
            assert_eq!(is_helped, is_taken(name), "-{name}");
        }
        for name in helped() {
            assert!(is_taken(name), "-{name}");
        }
    }
}
