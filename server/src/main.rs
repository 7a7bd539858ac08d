//! The program `gridhaul-server`.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use gridhaul_server::config::{
    CheckArguments, Command, CommandLine, PasswdArguments, ServeArguments,
};
use gridhaul_server::passwords::{self, Grant, PasswordsError};
use gridhaul_server::terminal::TerminalError;
use gridhaul_server::{check, serve, ssh, terminal};

fn main() -> ExitCode {
    let line = CommandLine::parse();
    let done = match line.command {
        Some(Command::Passwd(arguments)) => passwd(&arguments).map_err(|error| error.to_string()),
        Some(Command::Serve(arguments)) => run(&arguments),
        Some(Command::Check(arguments)) => check(&arguments),
        Some(Command::Ssh(arguments)) => ssh::serve(&arguments).map_err(|error| error.to_string()),
        Some(Command::Status(arguments)) => told(terminal::status(&arguments)),
        Some(Command::Top(arguments)) => told(terminal::top(&arguments)),
        Some(Command::Kick(arguments)) => told(terminal::kick(&arguments)),
        Some(Command::Drain(arguments)) => told(terminal::drain(&arguments)),
        Some(Command::Reload(arguments)) => told(terminal::reload(&arguments)),
        None => run(&line.serve),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gridhaul-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &ServeArguments) -> Result<(), String> {
    serve::serve(arguments).map_err(|error| error.to_string())
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

fn passwd(arguments: &PasswdArguments) -> Result<(), PasswordsError> {
    let grant = Grant {
        root: arguments.root.clone(),
        read_only: arguments.read_only,
    };
    let password = passwords::read_password()?;
    passwords::set_password(&arguments.file, &arguments.name, &password, &grant)
}
