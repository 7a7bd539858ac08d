//! The program `gridhaul-server`.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use gridhaul_server::bare;
use gridhaul_server::called_as;
use gridhaul_server::config::{
    CheckArguments, Command, CommandLine, DoctorArguments, ImportArguments, PasswdArguments,
    ServeArguments,
};
use gridhaul_server::globus::{self, Imported};
use gridhaul_server::passwords::{self, Change, Grant, PasswordsError};
use gridhaul_server::terminal::TerminalError;
use gridhaul_server::{check, doctor, node, serve, ssh, terminal};

/// The exit status of wrong arguments, as clap has it.
const USAGE: u8 = 2;

/// The exit status of `import` when limits of access were not carried over.
const NOT_ALL_LIMITS: u8 = 3;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    if arguments
        .next()
        .is_some_and(|program| called_as::is_globus(&program))
    {
        return globus::serve(&arguments.collect::<Vec<_>>());
    }
    let line = match CommandLine::of(std::env::args_os(), &globus::counterpart) {
        Ok(line) => line,
        Err(error) => return without_command(&error),
    };
    let done = match line.command {
        Some(Command::Passwd(arguments)) => passwd(&arguments).map_err(|error| error.to_string()),
        Some(Command::Serve(arguments)) => return run(&arguments),
        Some(Command::Check(arguments)) => check(&arguments),
        Some(Command::Doctor(arguments)) => doctor(&arguments),
        Some(Command::Ssh(arguments)) => ssh::serve(&arguments).map_err(|error| error.to_string()),
        Some(Command::Node(arguments)) => {
            node::serve(&arguments).map_err(|error| error.to_string())
        }
        Some(Command::Status(arguments)) => told(terminal::status(&arguments)),
        Some(Command::Top(arguments)) => told(terminal::top(&arguments)),
        Some(Command::Kick(arguments)) => told(terminal::kick(&arguments)),
        Some(Command::Drain(arguments)) => told(terminal::drain(&arguments)),
        Some(Command::Nodes(arguments)) => told(terminal::nodes(&arguments)),
        Some(Command::Reload(arguments)) => told(terminal::reload(&arguments)),
        Some(Command::Upgrade(arguments)) => told(terminal::upgrade(&arguments)),
        Some(Command::Import(arguments)) => return import(&arguments),
        Some(Command::Gct(arguments)) => return globus::serve(&arguments.arguments),
        None => return run(&line.serve),
    };
    ended(done)
}

fn ended(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gridhaul-server: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the help, the version, or an error.
fn without_command(error: &clap::Error) -> ExitCode {
    // There is no other place to report that standard error is closed.
    let _ = error.print();
    match error.use_stderr() {
        true => ExitCode::from(USAGE),
        false => ExitCode::SUCCESS,
    }
}

fn run(arguments: &ServeArguments) -> ExitCode {
    if bare::is_refused(arguments) {
        eprint!("{}", bare::USAGE);
        return ExitCode::from(USAGE);
    }
    ended(serve::serve(arguments).map_err(|error| error.to_string()))
}

fn told(done: Result<(), TerminalError>) -> Result<(), String> {
    done.map_err(|error| error.to_string())
}

fn check(arguments: &CheckArguments) -> Result<(), String> {
    match check::check(arguments, &mut io::stdout().lock()) {
        Ok(true) => Ok(()),
        Ok(false) => Err("with these errors the server does not work as it is meant to".to_owned()),
        Err(error) => Err(format!("the report cannot be written: {error}")),
    }
}

fn doctor(arguments: &DoctorArguments) -> Result<(), String> {
    match doctor::doctor(arguments, &mut io::stdout().lock()) {
        Ok(true) => Ok(()),
        Ok(false) if arguments.is_about_rdma() => Err("RDMA was not measured".to_owned()),
        Ok(false) => Err(
            "with these errors the server does not serve its clients as it is meant to".to_owned(),
        ),
        Err(error) => Err(format!("the report cannot be written: {error}")),
    }
}

fn import(arguments: &ImportArguments) -> ExitCode {
    match globus::import(arguments, &mut io::stdout().lock()) {
        Ok(Imported::AllLimits) => ExitCode::SUCCESS,
        Ok(Imported::SomeLimits) => {
            eprintln!(
                "gridhaul-server: not all limits of access were carried over: see the lines with ATTENTION"
            );
            ExitCode::from(NOT_ALL_LIMITS)
        }
        Err(error) => ended(Err(error.to_string())),
    }
}

fn passwd(arguments: &PasswdArguments) -> Result<(), PasswordsError> {
    let file = &arguments.file;
    let shown = file.display();
    let mut done = String::new();
    if let Some(name) = &arguments.delete {
        passwords::delete_user(file, name)?;
        done.push_str(&format!("deleted {name} from {shown}\n"));
    } else if let Some(name) = &arguments.name {
        let grant = Grant {
            root: arguments.root.clone(),
            read_only: arguments.read_only,
        };
        if let Some(root) = grant.root.as_ref().filter(|root| is_missing(root)) {
            return Err(PasswordsError::NoRoot(root.clone()));
        }
        let password = passwords::read_password()?;
        let what = match passwords::set_password(file, name, &password, &grant)? {
            Change::Added => format!("added {name} to {shown}\n"),
            Change::Changed => format!("changed the password of {name} in {shown}\n"),
        };
        done.push_str(&what);
    } else {
        for user in passwords::list_users(file)? {
            done.push_str(&format!("{user}\n"));
        }
    }
    // What was done is done, also if standard output is closed.
    let _ = io::stdout().lock().write_all(done.as_bytes());
    Ok(())
}

/// Whether there is no such directory. What this account may not see may be there.
fn is_missing(root: &Path) -> bool {
    match std::fs::metadata(root) {
        Ok(found) => !found.is_dir(),
        Err(error) => error.kind() != io::ErrorKind::PermissionDenied,
    }
}
