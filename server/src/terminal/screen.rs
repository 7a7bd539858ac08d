//! The terminal of `top`: without line editing and echo, on the screen that full-screen programs have.

use std::io::{self, Read as _, Write as _};
use std::thread;

use rustix::stdio;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The other screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The terminal. It is as before when the value is dropped.
#[derive(Debug)]
pub(super) struct Screen {
    before: Termios,
}

impl Screen {
    /// # Errors
    ///
    /// When standard input is no terminal.
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(stdio::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdio::stdin(), OptionalActions::Drain, &raw)?;
        let screen = Self { before };
        write(ENTER)?;
        Ok(screen)
    }

    /// Columns and rows.
    pub(super) fn size() -> (usize, usize) {
        match tcgetwinsize(stdio::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => (80, 24),
        }
    }

    /// The columns of standard output, if it is a terminal.
    pub(super) fn columns() -> Option<usize> {
        let size = tcgetwinsize(stdio::stdout()).ok()?;
        (size.ws_col > 0).then(|| size.ws_col.into())
    }

    /// Shows these lines, and nothing else.
    pub(super) fn show(&self, lines: &[String]) -> io::Result<()> {
        let mut text = "\x1b[H".to_owned();
        for (number, line) in lines.iter().enumerate() {
            if number > 0 {
                text.push_str("\r\n");
            }
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        write(&text)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = write(LEAVE);
        let _ = tcsetattr(stdio::stdin(), OptionalActions::Drain, &self.before);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// The typed characters, read by a thread that ends with the program. The channel ends with standard input.
pub(super) fn keys() -> io::Result<UnboundedReceiver<u8>> {
    let (tell, told) = unbounded_channel();
    let read = move || {
        let mut byte = [0];
        while let Ok(1) = io::stdin().lock().read(&mut byte) {
            if tell.send(byte[0]).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().spawn(read)?;
    Ok(told)
}
