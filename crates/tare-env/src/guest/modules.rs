//! Loading kernel modules from the initramfs. Their order is the host's business.

use std::ffi::CString;
use std::fs::File;
use std::path::Path;

use rustix::io::Errno;

use super::GuestError;

/// Modules without which no order can be heard, one name a line, in order.
pub(super) const BOOT_LIST: &str = "/modules/boot";

/// Loads one. That it is loaded already is no error.
pub(super) fn load(name: &str) -> Result<(), GuestError> {
    let path = Path::new("/modules").join(format!("{name}.ko"));
    let file = File::open(&path).map_err(|source| GuestError::File { path, source })?;
    let none = CString::default();
    match rustix::system::finit_module(&file, &none, 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(GuestError::Module { name: name.into(), source: error.into() }),
    }
}
