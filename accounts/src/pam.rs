//! PAM's account stage: whether the machine's configuration permits an account now.
//!
//! PAM modules are foreign code. They are loaded in a process of their own, which ends after its answer, and never in the
//! monitor or a broker. libpam is loaded on demand, so that the program runs on machines without it. Authentication is not
//! done by PAM.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::ptr;
use std::time::Duration;

use rustix::process::Signal;

use crate::process;
use crate::refusal::{Refusal, os_error};
use crate::socket::{self, Received};

/// The time limit of modules, which may query directory services.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The maximum length of the answer in bytes.
const ANSWER_BYTES: usize = 1024;

const LIBRARY: &CStr = c"libpam.so.0";

/// The directories of service files (pam.d(5)). For a service without a file, libpam would use the service `other`.
const DIRECTORIES: [&str; 2] = ["/etc/pam.d", "/usr/lib/pam.d"];

// From security/_pam_types.h.
const PAM_SUCCESS: c_int = 0;
const PAM_CONV_ERR: c_int = 19;
const PAM_SILENT: c_int = 0x8000;

/// Runs the account stage of `service`. Must be called as root, in a process with one thread.
///
/// # Errors
///
/// When a module refuses the account, or PAM cannot be used.
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
        // A module that hangs must end with the broker, because the monitor does not count this process.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        // SAFETY: only this socket is used here, and the process ends without using other descriptors of the broker.
        let closed = unsafe { process::close_all_but(&[theirs.as_fd()]) };
        let answer = match closed {
            Ok(()) => check_here(service, account),
            Err(error) => Err(error.to_string()),
        };
        // An empty message would be taken for the end.
        let answer = answer.err().unwrap_or_else(|| YES.to_owned());
        let length = answer.floor_char_boundary(ANSWER_BYTES);
        // An error means that the broker has ended.
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

/// The answer if the account is permitted.
const YES: &str = "yes";

fn answer(socket: &OwnedFd) -> Option<String> {
    if !socket::readable(socket, TIME_LIMIT).ok()? {
        return None;
    }
    let mut buffer = [0; ANSWER_BYTES];
    match socket::receive(socket, &mut buffer, &mut Vec::new()) {
        Ok(Received::Message(bytes)) => {
            Some(String::from_utf8_lossy(&buffer[..bytes]).into_owned())
        }
        _ => None,
    }
}

/// Whether this machine has a file for a PAM service.
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
type TextFunction = unsafe extern "C" fn(*mut c_void, c_int) -> *const c_char;

/// The functions of libpam.
struct Library {
    start: StartFunction,
    account: AccountFunction,
    text: TextFunction,
}

/// `struct pam_conv`.
#[repr(C)]
struct Conversation {
    talk: extern "C" fn(c_int, *mut c_void, *mut c_void, *mut c_void) -> c_int,
    data: *mut c_void,
}

/// Fails all conversations, because there is no user.
extern "C" fn refuse_conversation(
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
) -> c_int {
    PAM_CONV_ERR
}

/// Runs the account stage in this process, which ends afterwards: resources are not released.
fn check_here(service: &str, account: &str) -> Result<(), String> {
    let text = |text: &str| CString::new(text).map_err(|_| "a name has a zero byte".to_owned());
    let (service, account) = (text(service)?, text(account)?);
    let library = Library::open()?;
    let conversation = Conversation {
        talk: refuse_conversation,
        data: ptr::null_mut(),
    };
    let mut handle = ptr::null_mut();
    // SAFETY: the texts have a terminating zero, and they and the conversation outlive the handle.
    let started = unsafe {
        (library.start)(
            service.as_ptr(),
            account.as_ptr(),
            &raw const conversation,
            &raw mut handle,
        )
    };
    if started != PAM_SUCCESS {
        return Err(library.text(handle, started));
    }
    // SAFETY: the handle was made above.
    match unsafe { (library.account)(handle, PAM_SILENT) } {
        PAM_SUCCESS => Ok(()),
        refused => Err(library.text(handle, refused)),
    }
}

impl Library {
    fn open() -> Result<Self, String> {
        // SAFETY: the name has a terminating zero. The initialization of libpam is trusted, as by any program that links it.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err("libpam.so.0 is not installed".to_owned());
        }
        let find = |name: &CStr| {
            // SAFETY: the library is open, and the name has a terminating zero.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            if symbol.is_null() {
                return Err(format!("libpam.so.0 has no {}", name.to_string_lossy()));
            }
            Ok(symbol)
        };
        let (start, account, text) = (
            find(c"pam_start")?,
            find(c"pam_acct_mgmt")?,
            find(c"pam_strerror")?,
        );
        Ok(Self {
            // SAFETY: this is its type according to pam_start(3).
            start: unsafe { std::mem::transmute::<*mut c_void, StartFunction>(start) },
            // SAFETY: this is its type according to pam_acct_mgmt(3).
            account: unsafe { std::mem::transmute::<*mut c_void, AccountFunction>(account) },
            // SAFETY: this is its type according to pam_strerror(3).
            text: unsafe { std::mem::transmute::<*mut c_void, TextFunction>(text) },
        })
    }

    /// The text of an error.
    fn text(&self, handle: *mut c_void, error: c_int) -> String {
        // SAFETY: pam_strerror(3) accepts any handle and number.
        let text = unsafe { (self.text)(handle, error) };
        if text.is_null() {
            return format!("error {error}");
        }
        // SAFETY: it is a static text with a terminating zero.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}
