//! Manual pages: one for the program, and one for each command.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

/// The pages of a program.
#[derive(Debug)]
pub(crate) struct Manual {
    pub(crate) command: Command,
    /// 1 for programs of users, 8 for those of administrators.
    pub(crate) section: &'static str,
    /// What the page of the program has after its options, as roff.
    pub(crate) more: &'static str,
}

impl Manual {
    /// Writes the pages to a directory.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        for command in self.commands() {
            let page = self.page(&command);
            let path = directory.join(page.get_filename());
            let mut file = File::create(path)?;
            self.render(&page, &command, &mut file)?;
        }
        Ok(())
    }

    /// The program and its commands, without `help`. The program is the last.
    fn commands(&self) -> Vec<Command> {
        let mut program = self.command.clone().disable_help_subcommand(true);
        program.build();
        let mut commands = Vec::new();
        for command in program.get_subcommands() {
            commands.push(command.clone());
            let inner = command.get_subcommands();
            commands.extend(inner.filter(|one| one.get_name() != "help").cloned());
        }
        // Its options are those of its default command, or of its commands.
        commands.push(program.mut_args(|argument| argument.hide(true)));
        commands
    }

    /// Commands have the name of the program before their own.
    fn is_program(&self, command: &Command) -> bool {
        command.get_name() == self.command.get_name()
    }

    fn page(&self, command: &Command) -> Man {
        Man::new(command.clone())
            .section(self.section)
            .manual("gridhaul")
            .source(concat!("gridhaul ", env!("CARGO_PKG_VERSION")))
    }

    fn render(&self, page: &Man, command: &Command, to: &mut impl Write) -> io::Result<()> {
        page.render_title(to)?;
        page.render_name_section(to)?;
        // In place of the section of clap_mangen, which lists the eighty options of `serve`.
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").replace('-', "\\-");
        writeln!(to, ".SH SYNOPSIS\n.nf\n{usage}\n.fi")?;
        page.render_description_section(to)?;
        if self.is_program(command) {
            page.render_subcommands_section(to)?;
            to.write_all(self.more.as_bytes())?;
        } else {
            page.render_options_section(to)?;
            if command.has_subcommands() {
                page.render_subcommands_section(to)?;
            }
        }
        writeln!(to, ".SH SEE ALSO")?;
        let name = name_of(command);
        let others = self.commands();
        let others = others.iter().map(name_of).filter(|other| *other != name);
        let others: Vec<String> = others
            .map(|other| format!("\\fB{}\\fR({})", other.replace('-', "\\-"), self.section))
            .collect();
        writeln!(to, "{}", others.join(", "))
    }
}

/// With the names of the program and the command above, joined by hyphens.
fn name_of(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Program;

    fn text(manual: &Manual, command: &Command) -> String {
        let mut text = Vec::new();
        let page = manual.page(command);
        let written = manual.render(&page, command, &mut text);
        written.expect("written to memory");
        String::from_utf8(text).expect("UTF-8")
    }

    #[test]
    fn every_option_of_every_command_is_in_its_page() {
        for (program, least) in [(Program::Server, 300), (Program::Client, 150)] {
            let manual = program.manual();
            let mut options = 0;
            for command in manual.commands() {
                let page = text(&manual, &command).replace("\\-", "-");
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
            assert!(options > least, "{program:?}: only {options} options");
        }
    }

    #[test]
    fn there_is_a_page_for_each_command_and_the_program_names_all() {
        let of_server = [
            "serve", "check", "doctor", "ssh", "node", "status", "passwd",
        ];
        let of_client = ["copy", "ls", "guc", "config", "proxy", "proxy-create"];
        for (program, name, names) in [
            (Program::Server, "gridhaul-server", &of_server[..]),
            (Program::Client, "gridhaul", &of_client[..]),
        ] {
            let manual = program.manual();
            let section = manual.section;
            let directory = tempfile::tempdir().expect("a directory");
            manual.write(directory.path()).expect("written");
            let commands = manual.commands();
            let main = text(&manual, commands.last().expect("the program"));
            for command in names {
                let page = format!("{name}-{command}.{section}");
                assert!(directory.path().join(page).is_file(), "{command}");
                let named = format!("{name}-{command}\\fR({section})");
                assert!(main.replace("\\-", "-").contains(&named), "{command}");
            }
            assert!(directory.path().join(format!("{name}.{section}")).is_file());
        }
    }
}
