//! `globus-url-copy`: unusual file names.

use std::fs;

use super::deviations::DROPS;
use crate::cases::{Case, Context, Observation, Partners};
use crate::support::{Failure, check, content};

/// Names that every client of the table can send, each with a description for the report.
pub(super) const NAMES: [(&str, &str); 25] = [
    ("a space", "a b"),
    ("a leading space", " leading"),
    ("a trailing space", "trailing "),
    ("only spaces", "  "),
    ("a leading dash", "-p"),
    ("a leading tilde", "~tilde"),
    ("a tilde alone", "~"),
    ("double quotes", "\"quo\"ted\""),
    ("a single quote", "it's"),
    ("a percent sign", "per%cent"),
    ("an escape as a name", "%41"),
    ("a backslash", "back\\slash"),
    ("semicolons and equals", "size=1;type=dir; x"),
    ("a hash", "hash#"),
    ("a question mark", "ques?"),
    ("a star", "star*"),
    ("brackets", "[ab]"),
    ("braces and commas", "{a,b}"),
    ("a tabulator", "tab\there"),
    ("three dots", "..."),
    ("a leading dot", ".hidden"),
    ("a dollar and backquotes", "$HOME`id`"),
    ("angles, bar and ampersand", "<a>|&b"),
    ("a reply", "226 Transfer Complete."),
    ("the words of an error", "No such file or directory"),
];

/// A name with non-ASCII bytes, with a description for the report. The clients of Globus send it unchanged.
pub(super) const DROPPED: [(&str, &str); 1] = [("UTF-8", "ünï-漢字-🚀")];

/// As above; our server sends files with such names, but does not make them.
const CONTROL: [(&str, &str); 3] = [
    ("a newline", "new\nline"),
    ("a control character", "\u{1}x"),
    ("a byte of 0x7f", "x\u{7f}"),
];

pub(super) fn cases() -> Vec<Case> {
    let long = "x".repeat(255);
    let names = NAMES
        .map(|(word, name)| (word, name.to_owned()))
        .into_iter();
    let mut cases = Vec::new();
    for (word, name) in names.chain([("255 bytes", long)]) {
        let title = |direction: &str| format!("globus-url-copy/names {direction}, {word}");
        let [first, second, third, fourth] = [(); 4].map(|()| name.clone());
        cases.push(Case::new(title("get"), move |context| get(context, &first)));
        cases.push(Case::new(title("put"), move |context| {
            put(context, &second)
        }));
        cases.push(Case::new(title("list"), move |context| {
            list(context, &third)
        }));
        cases.extend(Case::third_party(title("third-party"), move |context| {
            third_party(context, &fourth)
        }));
    }
    cases.extend([
        Case::new("globus-url-copy/names get, 256 bytes", too_long),
        Case::new("globus-url-copy/names list, UTF-8", |context| {
            list(context, "ünï-漢字-🚀")
        }),
        Case::new(
            "globus-url-copy/names list, a newline does not hide other files",
            newline_listed,
        ),
    ]);
    for (word, name) in CONTROL {
        let title = format!("globus-url-copy/names get, {word}");
        let case = Case::new(title, move |context| get(context, name));
        cases.push(case.deviation(DROPS));
    }
    for (word, name) in DROPPED {
        let title = |direction: &str| format!("globus-url-copy/names {direction}, {word}");
        let third_party = Case::third_party(title("third-party"), move |context| {
            third_party(context, name)
        });
        let alike = third_party
            .into_iter()
            .filter(|case| case.setup.partners == Partners::Alike);
        let alone = [
            Case::new(title("get"), move |context| get(context, name)),
            Case::new(title("put"), move |context| put(context, name)),
        ];
        cases.extend(
            alone
                .into_iter()
                .chain(alike)
                .map(|case| case.deviation(DROPS)),
        );
    }
    cases
}

fn get(context: &Context<'_>, name: &str) -> Result<Observation, Failure> {
    let expected = context.remote_sample(name, 1000)?;
    context
        .globus_url_copy([context.from(name), context.local_url("copy")])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.local("copy"))?;
    Ok(Observation::none())
}

fn put(context: &Context<'_>, name: &str) -> Result<Observation, Failure> {
    let expected = context.local_sample("source", 1000)?;
    context
        .globus_url_copy([context.local_url("source"), context.to(name)])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote(name))?;
    Ok(Observation::none())
}

fn third_party(context: &Context<'_>, name: &str) -> Result<Observation, Failure> {
    context.remote_directory("from")?;
    context.remote_directory("to")?;
    let (from, to) = (format!("from/{name}"), format!("to/{name}"));
    let expected = context.remote_sample(&from, 1000)?;
    context
        .globus_url_copy([context.from(&from), context.to(&to)])
        .run()?
        .succeeded()?;
    content::same(&expected, &context.remote(&to))?;
    Ok(Observation::none())
}

/// The listing has the unchanged name on a line of its own.
fn list(context: &Context<'_>, name: &str) -> Result<Observation, Failure> {
    context.remote_sample(name, 1000)?;
    let listing = context
        .globus_url_copy(["-list".into(), context.from("")])
        .run()?
        .succeeded()?;
    // The client puts four spaces before and one after a name, or prints the whole URL instead when
    // the name ends in a quote.
    let line = format!("    {name} ");
    let named = |it: &str| it == line || it.ends_with(&format!("/{name}"));
    check(listing.output().lines().any(named), || {
        format!(
            "the listing lacks `{name}`
{listing}"
        )
    })?;
    Ok(Observation::none())
}

fn too_long(context: &Context<'_>) -> Result<Observation, Failure> {
    context
        .globus_url_copy([context.from(&"x".repeat(256)), context.local_url("copy")])
        .run()?
        .failed_with(1, &["File name too long"])?;
    Ok(Observation::none())
}

fn newline_listed(context: &Context<'_>) -> Result<Observation, Failure> {
    for name in ["before", "new\nline", "zebra"] {
        context.remote_sample(name, 10)?;
    }
    context
        .globus_url_copy(["-list".into(), context.from("")])
        .run()?
        .succeeded()?
        .prints(&["    before \n", "    zebra \n"])?;
    check(fs::read_dir(context.remote(""))?.count() == 3, || {
        "a file is gone".into()
    })?;
    Ok(Observation::none())
}
