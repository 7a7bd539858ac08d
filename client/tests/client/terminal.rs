//! Commands that ask at a terminal.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A command at a terminal.
pub(crate) struct Terminal {
    script: Child,
    screen: ChildStdout,
    shown: String,
}

impl Terminal {
    pub(crate) fn start(command: &str) -> Self {
        // script(1) gives the command a terminal.
        let mut script = Command::new("script")
            .args(["-q", "-e", "-c", command, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let screen = script.stdout.take().unwrap();
        Self {
            script,
            screen,
            shown: String::new(),
        }
    }

    /// Presses keys after the prompt. Returns what the terminal has shown in the end.
    pub(crate) fn answer(mut self, prompt: &str, keys: &str) -> String {
        while !self.shown.contains(prompt) {
            let mut bytes = [0; 256];
            let count = self.screen.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "{}", self.shown);
            self.shown += &String::from_utf8_lossy(&bytes[..count]);
        }
        let mut keyboard = self.script.stdin.take().unwrap();
        keyboard.write_all(keys.as_bytes()).unwrap();
        self.read()
    }

    /// What the terminal has shown in the end.
    pub(crate) fn read(mut self) -> String {
        self.screen.read_to_string(&mut self.shown).unwrap();
        self.script.wait().unwrap();
        self.shown
    }
}
