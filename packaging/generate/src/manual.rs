//! Manual pages in section 8: one for the program, and one for each command.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use gridhaul_server::config::CommandLine;

/// What the page of the program has after its options, as roff.
const MORE: &str = r"
.SH SIGNALS
.TP
\fBSIGTERM\fR, \fBSIGINT\fR
Accept no new connections; running transfers have \fBgrace\fR seconds to finish.
.TP
\fBSIGHUP\fR
Read the configuration again, and reopen the log files.
.SH EXIT STATUS
0 after success, 1 after an error, 2 for wrong arguments.
.SH FILES
.TP
\fI/etc/gridhaul/gridhaul.toml\fR
The configuration file of the service. The server reads it only because the unit names it with \fB\-\-config\fR.
.TP
\fI/etc/grid\-security/\fR
The host certificate, the trusted authorities and the grid\-mapfile, as for other grid services.
.TP
\fI/run/gridhaul/admin.sock\fR
The socket of the commands status, top, kick, drain and reload.
.TP
\fI/var/log/gridhaul/\fR
The logs that the configuration names. Other messages are in the journal.
";

/// Writes the pages to a directory.
///
/// # Errors
///
/// When a file cannot be written.
pub(crate) fn write(directory: &Path) -> io::Result<()> {
    for command in commands() {
        let page = page(&command);
        let path = directory.join(page.get_filename());
        let mut file = File::create(path)?;
        render(&page, &command, &mut file)?;
    }
    Ok(())
}

/// The program and its commands, without `help`.
fn commands() -> Vec<Command> {
    let mut program = CommandLine::command().disable_help_subcommand(true);
    program.build();
    let mut commands: Vec<Command> = program.get_subcommands().cloned().collect();
    // Its options are those of `serve`, which is the default.
    commands.push(program.mut_args(|argument| argument.hide(true)));
    commands
}

/// Commands have the name of the program before their own.
fn is_program(command: &Command) -> bool {
    command.get_name() == CommandLine::command().get_name()
}

fn page(command: &Command) -> Man {
    Man::new(command.clone())
        .section("8")
        .manual("gridhaul")
        .source(concat!("gridhaul ", env!("CARGO_PKG_VERSION")))
}

fn render(page: &Man, command: &Command, to: &mut impl Write) -> io::Result<()> {
    page.render_title(to)?;
    page.render_name_section(to)?;
    // In place of the section of clap_mangen, which lists the eighty options of `serve`.
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace('-', "\\-");
    writeln!(to, ".SH SYNOPSIS\n.nf\n{usage}\n.fi")?;
    page.render_description_section(to)?;
    if is_program(command) {
        page.render_subcommands_section(to)?;
        to.write_all(MORE.as_bytes())?;
    } else {
        page.render_options_section(to)?;
        if command.has_subcommands() {
            page.render_subcommands_section(to)?;
        }
    }
    writeln!(to, ".SH SEE ALSO")?;
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name());
    let others = commands();
    let others = others.iter().map(|other| {
        let name = other.get_display_name().unwrap_or_else(|| other.get_name());
        name.to_owned()
    });
    let others: Vec<String> = others
        .filter(|other| other != name)
        .map(|other| format!("\\fB{}\\fR(8)", other.replace('-', "\\-")))
        .collect();
    writeln!(to, "{}", others.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(command: &Command) -> String {
        let mut text = Vec::new();
        render(&page(command), command, &mut text).expect("written to memory");
        String::from_utf8(text).expect("UTF-8")
    }

    #[test]
    fn every_option_of_every_command_is_in_its_page() {
        let mut options = 0;
        for command in commands() {
            let page = text(&command).replace("\\-", "-");
            let arguments = command.get_arguments();
            for argument in arguments.filter(|one| !one.is_hide_set()) {
                let Some(name) = argument.get_long() else {
                    continue;
                };
                options += 1;
                let has = page.contains(&format!("\\fB--{name}\\fR"));
                assert!(has, "{}: no --{name} in {page}", command.get_name());
            }
        }
        assert!(options > 300, "only {options} options");
    }

    #[test]
    fn there_is_a_page_for_each_command_and_the_program_names_all() {
        let directory = tempfile::tempdir().expect("a directory");
        write(directory.path()).expect("written");
        let program = text(commands().last().expect("the program"));
        for name in [
            "serve", "check", "doctor", "ssh", "node", "status", "passwd",
        ] {
            let page = directory.path().join(format!("gridhaul-server-{name}.8"));
            assert!(page.is_file(), "{name}");
            assert!(
                program.contains(&format!("gridhaul\\-server\\-{name}\\fR(8)")),
                "{name}"
            );
        }
        assert!(directory.path().join("gridhaul-server.8").is_file());
    }
}
