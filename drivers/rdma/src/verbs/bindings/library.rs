//! Shared libraries that are loaded at first use.

use std::ffi::{CStr, c_char, c_void};

/// Why a library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LibraryError {
    #[error("{file} cannot be loaded ({reason}); on Debian it comes with: apt install {packages}")]
    Missing {
        file: &'static str,
        packages: &'static str,
        reason: String,
    },
    #[error("{file} has no {function}; rdma-core 17 or later is needed")]
    Old {
        file: &'static str,
        function: &'static str,
    },
}

/// Declares the functions of a library and their lookup. Optional ones are missing in older versions.
macro_rules! library {
    (
        $(#[$attribute:meta])* $library:ident, $file:literal, $packages:literal;
        $(fn $function:ident($($argument:ty),*) $(-> $result:ty)?;)*
        $(optional fn $newer:ident($($parameter:ty),*) $(-> $outcome:ty)?;)*
    ) => {
        $(#[$attribute])*
        #[derive(Debug)]
        pub(super) struct $library {
            $(pub(super) $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $(pub(super) $newer: Option<unsafe extern "C" fn($($parameter),*) $(-> $outcome)?>,)*
        }

        impl $library {
            /// The library, which is loaded once and stays loaded.
            ///
            /// # Errors
            ///
            /// When it is missing or too old.
            pub(super) fn get() -> Result<&'static Self, LibraryError> {
                static LOADED: OnceLock<Result<$library, LibraryError>> = OnceLock::new();
                LOADED.get_or_init(Self::load).as_ref().map_err(Clone::clone)
            }

            fn load() -> Result<Self, LibraryError> {
                let library = Handle::open(concat!($file, "\0"), $file, $packages)?;
                Ok(Self {
                    $($function: {
                        let symbol = library.find(concat!(stringify!($function), "\0"))?;
                        // SAFETY: this is the function's type in the header named above.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(symbol)
                        }
                    },)*
                    $($newer: {
                        let symbol = library.find(concat!(stringify!($newer), "\0"));
                        // SAFETY: as above.
                        symbol.ok().map(|symbol| unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($parameter),*) $(-> $outcome)?,
                            >(symbol)
                        })
                    },)*
                })
            }
        }
    };
}

pub(in crate::verbs) use library;

/// A loaded library.
pub(in crate::verbs) struct Handle {
    handle: *mut c_void,
    file: &'static str,
}

impl Handle {
    /// `name` is `file` with a zero at its end.
    pub(in crate::verbs) fn open(
        name: &'static str,
        file: &'static str,
        packages: &'static str,
    ) -> Result<Self, LibraryError> {
        // SAFETY: the name ends with a zero. The library's initialisation is trusted, as by any
        // program that is linked with it.
        let handle = unsafe { libc::dlopen(name.as_ptr().cast(), libc::RTLD_NOW) };
        if handle.is_null() {
            // SAFETY: dlerror(3) returns a string or null.
            let reason = text(unsafe { libc::dlerror() });
            return Err(LibraryError::Missing {
                file,
                packages,
                reason,
            });
        }
        Ok(Self { handle, file })
    }

    /// The newest version of a function, whose name ends with a zero.
    pub(in crate::verbs) fn find(&self, name: &'static str) -> Result<*mut c_void, LibraryError> {
        // SAFETY: the library is open, and the name ends with a zero.
        let symbol = unsafe { libc::dlsym(self.handle, name.as_ptr().cast()) };
        if symbol.is_null() {
            return Err(LibraryError::Old {
                file: self.file,
                function: name.trim_end_matches('\0'),
            });
        }
        Ok(symbol)
    }
}

/// A string of a library, which may be null.
pub(in crate::verbs) fn text(text: *const c_char) -> String {
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: the library returns strings that end with a zero and stay valid until the same thread
    // asks again.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
