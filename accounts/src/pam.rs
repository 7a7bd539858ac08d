//! PAM's account stage: whether the machine's own rules let an account in now.
//!
//! Modules are foreign code. They are loaded in a process of their own, which ends with the answer, and
//! never in the monitor or a broker. libpam is opened when it is needed, so that machines without it
//! lack nothing else. No password is asked for: that stage is GSI's.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::ptr;
use std::time::Duration;

use rustix::process::Signal;

use crate::process;
use crate::refusal::{Refusal, os_error};
use crate::socket::{self, Received};

/// How long modules may take: they ask directory services.
const TIME: Duration = Duration::from_secs(30);

/// The longest answer, in bytes.
const ANSWER: usize = 1024;

const LIBRARY: &CStr = c"libpam.so.0";

/// Where services are described (pam.d(5)). For one that is not, libpam would ask the service `other`.
const DIRECTORIES: [&str; 2] = ["/etc/pam.d", "/usr/lib/pam.d"];

// From security/_pam_types.h.
const PAM_SUCCESS: c_int = 0;
const PAM_CONV_ERR: c_int = 19;
const PAM_SILENT: c_int = 0x8000;

/// Asks the account stage of `service`. Must be called as root, in a process with one thread.
///
/// # Errors
///
/// When a module refuses the account, or PAM cannot be asked.
pub(crate) fn check(service: &str, account: &str) -> Result<(), Refusal> {
    let unasked = |reason: String| Refusal::Machine {
        account: account.to_owned(),
        what: format!("PAM's service '{service}'"),
        reason,
    };
    if !pam_service_is_described(service) {
        let places = DIRECTORIES.join(" or ");
        return Err(unasked(format!("it is not described in {places}")));
    }
    let (ours, theirs) = socket::pair().map_err(|errno| unasked(os_error(errno)))?;
    process::fork(|| {
        // A module that hangs would stay when the broker has given up, and nothing would count it.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        // SAFETY: nothing but this socket is used here, and the process ends without going back to what
        // the broker had open.
        let closed = unsafe { process::close_all_but(theirs.as_fd()) };
        let answer = match closed {
            Ok(()) => ask(service, account),
            Err(error) => Err(error.to_string()),
        };
        // An empty message would be the end.
        let answer = answer.err().unwrap_or_else(|| YES.to_owned());
        let length = answer.floor_char_boundary(ANSWER);
        // Sending fails only if the other end is gone and waits no more.
        let _ = socket::send(&theirs, &answer.as_bytes()[..length], &[]);
    })
    .map_err(|error| unasked(error.to_string()))?;
    drop(theirs);
    match answer(&ours) {
        Some(answer) if answer == YES => Ok(()),
        Some(reason) => Err(Refusal::Pam {
            account: account.to_owned(),
            service: service.to_owned(),
            reason,
        }),
        None => Err(unasked("there was no answer".to_owned())),
    }
}

/// What the process that asks says when the account may be used.
const YES: &str = "yes";

fn answer(socket: &OwnedFd) -> Option<String> {
    if !socket::readable(socket, TIME).ok()? {
        return None;
    }
    let mut buffer = [0; ANSWER];
    match socket::receive(socket, &mut buffer, &mut Vec::new()) {
        Ok(Received::Message(bytes)) => {
            Some(String::from_utf8_lossy(&buffer[..bytes]).into_owned())
        }
        _ => None,
    }
}

/// Whether this machine says what a PAM service asks.
pub fn pam_service_is_described(service: &str) -> bool {
    let is_name = !service.is_empty() && !service.contains('/');
    is_name
        && DIRECTORIES
            .iter()
            .any(|directory| Path::new(directory).join(service).is_file())
}

type StartFunction = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const Conversation,
    *mut *mut c_void,
) -> c_int;
type AccountFunction = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type WordsFunction = unsafe extern "C" fn(*mut c_void, c_int) -> *const c_char;

/// The functions of libpam that are used.
struct Library {
    start: StartFunction,
    account: AccountFunction,
    words: WordsFunction,
}

/// `struct pam_conv`.
#[repr(C)]
struct Conversation {
    talk: extern "C" fn(c_int, *mut c_void, *mut c_void, *mut c_void) -> c_int,
    data: *mut c_void,
}

/// There is no user to talk to.
extern "C" fn say_nothing(_: c_int, _: *mut c_void, _: *mut c_void, _: *mut c_void) -> c_int {
    PAM_CONV_ERR
}

/// In a process that ends after it, which is why nothing is given back.
fn ask(service: &str, account: &str) -> Result<(), String> {
    let text = |text: &str| CString::new(text).map_err(|_| "a name has a zero byte".to_owned());
    let (service, account) = (text(service)?, text(account)?);
    let library = Library::open()?;
    let conversation = Conversation {
        talk: say_nothing,
        data: ptr::null_mut(),
    };
    let mut handle = ptr::null_mut();
    // SAFETY: the texts end with a zero, and they and the conversation outlive the handle.
    let started = unsafe {
        (library.start)(
            service.as_ptr(),
            account.as_ptr(),
            &raw const conversation,
            &raw mut handle,
        )
    };
    if started != PAM_SUCCESS {
        return Err(library.words(handle, started));
    }
    // SAFETY: the handle was made above.
    match unsafe { (library.account)(handle, PAM_SILENT) } {
        PAM_SUCCESS => Ok(()),
        refused => Err(library.words(handle, refused)),
    }
}

impl Library {
    fn open() -> Result<Self, String> {
        // SAFETY: the name ends with a zero. What the library does when it is loaded is what any program
        // that is linked with it trusts.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err("libpam.so.0 is not installed".to_owned());
        }
        let find = |name: &CStr| {
            // SAFETY: the library is open, and the name ends with a zero.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            if symbol.is_null() {
                return Err(format!("libpam.so.0 has no {}", name.to_string_lossy()));
            }
            Ok(symbol)
        };
        let (start, account, words) = (
            find(c"pam_start")?,
            find(c"pam_acct_mgmt")?,
            find(c"pam_strerror")?,
        );
        Ok(Self {
            // SAFETY: pam_start(3) says that this is its type.
            start: unsafe { std::mem::transmute::<*mut c_void, StartFunction>(start) },
            // SAFETY: pam_acct_mgmt(3) says that this is its type.
            account: unsafe { std::mem::transmute::<*mut c_void, AccountFunction>(account) },
            // SAFETY: pam_strerror(3) says that this is its type.
            words: unsafe { std::mem::transmute::<*mut c_void, WordsFunction>(words) },
        })
    }

    /// PAM's words for an error.
    fn words(&self, handle: *mut c_void, error: c_int) -> String {
        // SAFETY: it takes any handle, and any number.
        let words = unsafe { (self.words)(handle, error) };
        if words.is_null() {
            return format!("error {error}");
        }
        // SAFETY: it is a text that ends with a zero and stays as it is.
        let words = unsafe { CStr::from_ptr(words) };
        words.to_string_lossy().into_owned()
    }
}
