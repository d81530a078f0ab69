//! Loading kernel modules from the initramfs. The host decides their order.

use std::ffi::CString;
use std::fs::File;
use std::path::Path;

use rustix::io::Errno;

use super::GuestError;

/// The list of modules that the guest needs to receive orders, one name per line, in order.
pub(super) const BOOT_LIST: &str = "/modules/boot";

/// Loads a module, unless it is loaded.
pub(super) fn load(name: &str) -> Result<(), GuestError> {
    let path = Path::new("/modules").join(format!("{name}.ko"));
    let file = File::open(&path).map_err(|source| GuestError::File { path, source })?;
    let none = CString::default();
    match rustix::system::finit_module(&file, &none, 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(GuestError::Module { name: name.into(), source: error.into() }),
    }
}
