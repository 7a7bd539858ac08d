//! `-dcstack`: the client adds `gsi` to the requested stack unless it contains it.

use std::fs;

use super::variants::SIZE;
use crate::cases::table::transfers::{get, put, third_party};
use crate::cases::{Case, Context, Observation};
use crate::support::{Failure, UserKind, check};

/// Stacks that servers accept.
const GOOD: [&[&str]; 9] = [
    &["-dcstack", "tcp"],
    &["-dcstack", "tcp,gsi"],
    &["-dcstack", "tcp", "-dcpriv"],
    &["-dcstack", "tcp,gsi", "-dcpriv", "-p", "2"],
    &["-dcstack", "tcp", "-dcsafe", "-p", "4"],
    &["-dcstack", "tcp,gsi", "-fast"],
    // With -nodcau the client requests no stack.
    &["-dcstack", "tcp", "-nodcau"],
    &["-dcstack", "nosuchdriver", "-nodcau"],
    &["-udt", "-nodcau"],
];

/// Stacks for one end only.
const ONE_END: [&[&str]; 2] = [
    &["-src-dcstack", "tcp,gsi"],
    &["-dst-dcstack", "tcp", "-dcpriv", "-p", "2"],
];

/// Stacks that servers refuse.
const BAD: [&[&str]; 4] = [
    &["-dcstack", "gsi,tcp"],
    &["-dcstack", "nosuchdriver"],
    &["-dcstack", "nosuchdriver:option=1", "-p", "2"],
    &["-udt"],
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let name = |what: &str, options: &[&str]| format!("gsi/stacks {what} {}", options.join(" "));
    for options in GOOD {
        cases.push(Case::new(name("get", options), |context| {
            get(context, options, SIZE)
        }));
        cases.push(Case::new(name("put", options), |context| {
            put(context, options, SIZE)
        }));
    }
    for options in GOOD.into_iter().chain(ONE_END) {
        cases.extend(Case::third_party(name("third-party", options), |context| {
            third_party(context, options, SIZE)
        }));
    }
    for options in BAD {
        let case = Case::new(name("get refused", options), |context| {
            get_fails(context, options)
        });
        cases.push(case);
        let name = name("third-party refused", options);
        cases.extend(Case::third_party(name, |context| refused(context, options)));
    }
    cases
        .into_iter()
        .map(|case| case.gsi(UserKind::Spaces))
        .collect()
}

/// The client itself cannot set up some of the stacks. No byte of the file may arrive.
fn get_fails(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    context.remote_sample("source", SIZE)?;
    context
        .globus_url_copy(options)
        .args([context.from("source"), context.local_url("copy")])
        .run()?
        .failed_with(1, &["error: "])?;
    let received = fs::metadata(context.local("copy")).map_or(0, |copy| copy.len());
    check(received == 0, || {
        format!("{received} bytes arrived nevertheless")
    })?;
    Ok(Observation::none())
}

/// In a third-party copy the client only forwards the stack.
fn refused(context: &Context<'_>, options: &[&str]) -> Result<Observation, Failure> {
    context.remote_sample("source", SIZE)?;
    context
        .globus_url_copy(options)
        .args([context.from("source"), context.to("copy")])
        .run()?
        .failed_with(1, &["the server responded with an error"])?;
    Ok(Observation::none())
}
