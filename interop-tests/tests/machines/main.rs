//! The guide to three machines, executed: its commands run in three network namespaces, which stand in for the machines.
//!
//! Each machine has its own network, processes, host name, `/etc`, `/home`, `/root`, `/run` and `/var`, and all have the same `/srv`. There is no
//! systemd and no SSH on them: the programs in `stand-ins` do what the commands of the guide need.

mod machine;

use std::fs;
use std::path::Path;

use machine::Machines;

const GUIDE: &str = "../docs/operators/three-machines.md";

const NODES: [&str; 2] = ["dtn1.example.org", "dtn2.example.org"];

type IsComplete = fn(&str) -> bool;

/// Commands that show the log, and what the guide says of their output.
const LOGS: [(&str, IsComplete); 2] = [
    ("grep 'a data node'", |output| {
        let can_be_used = |node| {
            let mut lines = output.lines();
            lines.any(|line| line.contains("a data node can be used") && line.contains(node))
        };
        NODES.into_iter().all(can_be_used)
    }),
    ("grep 'transfer finished'", |output| {
        let is_striped = |line: &str| {
            let of_both = NODES.iter().all(|node| line.contains(node));
            of_both && line.contains("stripes=2 ")
        };
        output.lines().any(is_striped)
    }),
];

/// A block of commands and the machines that execute it.
#[derive(Debug, PartialEq)]
struct Step {
    machines: Vec<String>,
    commands: String,
}

/// The blocks of commands of a page, each after a line `<!-- on MACHINE ... -->`. No other block of commands may be there.
fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = page.lines();
    let mut machines = None;
    while let Some(line) = lines.next() {
        let names = line
            .strip_prefix("<!-- on ")
            .and_then(|rest| rest.strip_suffix(" -->"));
        if let Some(names) = names {
            machines = Some(names.split(' ').map(str::to_owned).collect());
        } else if line == "```sh" {
            let block = lines.by_ref().take_while(|line| *line != "```");
            steps.push(Step {
                machines: machines.take().expect("a block without its machines"),
                commands: block.map(|line| format!("{line}\n")).collect(),
            });
        }
    }
    steps
}

#[test]
fn the_guide_to_three_machines_works_as_written() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(GUIDE);
    let steps = steps(&fs::read_to_string(page).unwrap());
    assert!(steps.len() > 10, "{steps:?}");
    let machines = Machines::start(&["gridftp", "dtn1", "dtn2"]);
    let mut seen = 0;
    for step in &steps {
        for machine in &step.machines {
            // What the reader is to see in the log may take a moment.
            let log = LOGS.iter().find(|(part, _)| step.commands.contains(part));
            match log {
                Some((_, is_complete)) => machines.until(machine, &step.commands, *is_complete),
                None => machines.run(machine, &step.commands),
            };
            seen += usize::from(log.is_some());
        }
    }
    assert_eq!(seen, LOGS.len());
    // The node that was stopped has no part in the last copy.
    let log = machines.run("gridftp.example.org", "journalctl -u gridhaul");
    let last = log.lines().rfind(|line| line.contains("transfer finished"));
    let last = last.unwrap_or_else(|| panic!("{log}"));
    assert!(last.contains("/more\"") && !last.contains("dtn1"), "{last}");
}

#[test]
fn blocks_belong_to_the_machines_before_them() {
    let page = "text\n<!-- on a b -->\n```sh\none\ntwo\n```\n\n```toml\nx = 1\n```\n";
    let step = Step {
        machines: vec!["a".to_owned(), "b".to_owned()],
        commands: "one\ntwo\n".to_owned(),
    };
    assert_eq!(steps(page), [step]);
}
