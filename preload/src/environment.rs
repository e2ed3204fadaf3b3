//! The environment of the programs that this one starts. The library and its settings are put back into one
//! that the program has made anew; an LD_PRELOAD that is there, also an empty one, is the program's
//! decision and stays as it is.
//!
//! Called by the hooks of exec, in children that borrow their parent's memory too (vfork): what this
//! process sees as its own environment is never touched, lists of usual length are made on the stack, and
//! nothing comes from the program's heap. Memory that cannot be read is left for the kernel to refuse.

use crate::probe::Pages;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use transport::sys::fd;
use transport::sys::mem::Mapping;
use transport::syscall;

/// A list of C strings that ends with null.
pub(crate) type Words = *const *const c_char;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const SETTING: &[u8] = b"SHUNT_";

/// Settings that are looked after: one bit each in [`Plan::has`].
const MOST: usize = 64;

/// Strings up to which a list is made on the stack, of which a thread may have 16 KiB.
const SMALL: usize = 256;
/// Longest file name.
const NAME: usize = 256;

/// What the environment held when this program began.
#[derive(Debug)]
struct Start {
    /// LD_PRELOAD as a whole, where it named this library.
    preload: Option<CString>,
    /// The library's path in there, if it is one.
    path: Option<CString>,
    settings: Vec<CString>,
    /// The library's file name.
    library: Vec<u8>,
}

static START: OnceLock<Start> = OnceLock::new();

/// Keeps what is to be handed on. Once, at start.
///
/// # Safety
/// `envp` is null or a list of C strings.
pub(crate) unsafe fn init(envp: Words) {
    let mut start = Start {
        preload: None,
        path: None,
        settings: Vec::new(),
        library: library(),
    };
    let mut at = envp;
    // SAFETY: the caller's promise.
    while !at.is_null() && !unsafe { *at }.is_null() {
        // SAFETY: as above.
        let pair = unsafe { CStr::from_ptr(*at) };
        if pair.to_bytes().starts_with(SETTING) && start.settings.len() < MOST {
            start.settings.push(pair.to_owned());
        } else if let Some(list) = pair.to_bytes().strip_prefix(PRELOAD)
            && start.preload.is_none()
            && let Some(path) = find(list, &start.library)
        {
            start.preload = Some(pair.to_owned());
            start.path = CString::new(path).ok().filter(|_| path.contains(&b'/'));
        }
        at = at.wrapping_add(1);
    }
    let _ = START.set(start);
}

/// The file name of this library, as the loader knows it.
fn library() -> Vec<u8> {
    // SAFETY: all-zero is a valid value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here = (&raw const START).cast::<c_void>();
    // SAFETY: `info` is writable; an address of this library.
    if unsafe { libc::dladdr(here, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return Vec::new();
    }
    // SAFETY: the loader's string, which lives as long as the library.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    file_name(path).to_owned()
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

/// What names this library in an LD_PRELOAD.
fn find<'a>(list: &'a [u8], library: &[u8]) -> Option<&'a [u8]> {
    list.split(|&b| b == b':' || b == b' ')
        .find(|path| !path.is_empty() && file_name(path) == library)
}

/// Takes a variable out of an environment, in place. Its value.
///
/// # Safety
/// `envp` is null or a list of C strings that may be changed.
pub(crate) unsafe fn take(envp: Words, name: &[u8]) -> Option<CString> {
    let mut at = envp.cast_mut();
    let mut found = None;
    // SAFETY: the caller's promise; what follows moves down by one, the null too.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let value = CStr::from_ptr(*at)
                .to_bytes()
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(b"="));
            let Some(value) = value else {
                at = at.add(1);
                continue;
            };
            found = CString::new(value).ok();
            let mut to = at;
            while !(*to).is_null() {
                *to = *to.add(1);
                to = to.add(1);
            }
        }
    }
    found
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preload {
    Absent,
    Ours,
    /// Without this library, or such as it cannot be loaded by.
    Others,
}

/// What is to be done to an environment.
#[derive(Debug)]
pub(crate) struct Plan {
    start: &'static Start,
    len: usize,
    preload: Preload,
    /// Which of the settings at start it has.
    has: u64,
}

/// Looks at an environment. `None` if nothing is to be done to it, since the library is not ready or the
/// memory cannot be read.
pub(crate) fn plan(envp: Words) -> Option<Plan> {
    let mut plan = Plan {
        start: START.get()?,
        len: 0,
        preload: Preload::Absent,
        has: 0,
    };
    if envp.is_null() {
        return Some(plan.settled()); // an empty one, to the kernel
    }
    let (mut list, mut text) = (Pages::new(), Pages::new());
    loop {
        let at = list.word(envp.wrapping_add(plan.len))?;
        if at.is_null() {
            return Some(plan.settled());
        }
        plan.look_at(&mut text, at)?;
        plan.len += 1;
    }
}

/// Whether the string begins like this. `None` if it cannot be read.
fn begins(pages: &mut Pages, at: *const u8, with: &[u8]) -> Option<bool> {
    for (i, &b) in with.iter().enumerate() {
        if pages.byte(at.wrapping_add(i))? != b {
            return Some(false);
        }
    }
    Some(true)
}

impl Plan {
    /// The loader complains of a library that it cannot open: where this process, which may have another
    /// user or root directory by now, cannot, nothing is added.
    fn settled(mut self) -> Self {
        if self.preload == Preload::Absent
            && let Some(path) = &self.start.path
        {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC;
            // SAFETY: a C string.
            match unsafe { syscall!(openat, libc::AT_FDCWD, path.as_ptr(), flags) } {
                Ok(fd) => fd::close(fd::as_fd(fd)),
                // (too many open files say nothing of it)
                Err(e) if matches!(e.0, libc::EMFILE | libc::ENFILE) => {}
                Err(_) => self.preload = Preload::Others,
            }
        }
        self
    }

    fn look_at(&mut self, pages: &mut Pages, pair: *const c_char) -> Option<()> {
        let pair = pair.cast::<u8>();
        if begins(pages, pair, PRELOAD)? {
            // (the loader takes the first of several)
            if self.preload == Preload::Absent {
                self.preload = self.whose(pages, pair.wrapping_add(PRELOAD.len()))?;
            }
        } else if begins(pages, pair, SETTING)? {
            for (i, setting) in self.start.settings.iter().enumerate() {
                let setting = setting.to_bytes();
                let name = setting.iter().position(|&b| b == b'=');
                if let Some(name) = name.and_then(|n| setting.get(..=n))
                    && begins(pages, pair, name)?
                {
                    self.has |= 1 << i;
                }
            }
        }
        Some(())
    }

    /// By the file names in the list, one after the other: it may be longer than there is stack.
    fn whose(&self, pages: &mut Pages, mut value: *const u8) -> Option<Preload> {
        let mut name = [0; NAME];
        let mut len = 0;
        loop {
            let byte = pages.byte(value)?;
            value = value.wrapping_add(1);
            match byte {
                0 | b':' | b' ' => {
                    let is_ours = len > 0 && name.get(..len) == Some(&*self.start.library);
                    if is_ours {
                        return Some(Preload::Ours);
                    }
                    if byte == 0 {
                        return Some(Preload::Others);
                    }
                    len = 0;
                }
                b'/' => len = 0,
                _ => {
                    // (what is longer is no name of a file)
                    if let Some(slot) = name.get_mut(len) {
                        *slot = byte;
                        len += 1;
                    }
                }
            }
        }
    }

    /// Whether the new program will have this library. (Where LD_PRELOAD did not name it at start, it is
    /// loaded by other means, which the environment does not change.)
    pub(crate) fn has_library(&self) -> bool {
        self.preload != Preload::Others
    }

    /// What is missing.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &CStr> {
        let absent = self.preload == Preload::Absent;
        let preload = self.start.preload.iter();
        let settings = self.start.settings.iter().enumerate();
        let settings = settings
            .filter(|(i, _)| self.has & (1 << i) == 0)
            .map(|(_, s)| s);
        preload
            .chain(settings)
            .filter(move |_| absent)
            .map(CString::as_c_str)
    }

    /// Calls with the environment, made complete. With one that has become too big for the kernel the call
    /// is made again as the program wanted it.
    pub(crate) fn apply<R>(
        &self,
        envp: Words,
        more: Option<&CStr>,
        is_too_big: impl Fn(&R) -> bool,
        mut call: impl FnMut(Words) -> R,
    ) -> R {
        let added = self.missing().count() + usize::from(more.is_some());
        if added == 0 {
            return call(envp);
        }
        let room = self.len + added + 1;
        let mut small = [const { MaybeUninit::<*const c_char>::uninit() }; SMALL];
        let mut large = None;
        let list: *mut *const c_char = if room <= SMALL {
            small.as_mut_ptr().cast()
        } else {
            match Mapping::private(room * size_of::<usize>()) {
                Ok(m) => large.insert(m).base().as_ptr().cast(),
                Err(_) => return call(envp),
            }
        };
        // SAFETY: there is room for all of it; the program's list has been read to its end.
        unsafe {
            if self.len > 0 {
                std::ptr::copy_nonoverlapping(envp, list, self.len);
            }
            let mut to = list.add(self.len);
            for pair in self.missing().chain(more) {
                to.write(pair.as_ptr());
                to = to.add(1);
            }
            to.write(std::ptr::null());
        }
        let r = call(list);
        drop(large);
        if is_too_big(&r) { call(envp) } else { r }
    }
}
