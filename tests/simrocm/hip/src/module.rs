//! Code objects and kernels: from fat binaries in programs, from files, and the runtime's own.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use gputrace_simrocm_core::blit as blit_kernels;
use gputrace_simrocm_core::code_object::{
    BUNDLE_MAGIC, CodeObject, Kernel as Metadata, bundle_bytes, bundle_entry, write,
};
use gputrace_simrocm_core::ffi::Untyped;

use crate::device::{Device, device, system};
use crate::error::{Error, Hip, check};
use crate::hsa;

/// A kernel of a loaded code object.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    /// The name as a C string, which is never freed.
    pub(crate) c_name: &'static CStr,
    pub(crate) device: usize,
    /// Address of its descriptor.
    pub(crate) object: u64,
    pub(crate) metadata: Metadata,
}

/// A code object loaded on a device.
#[derive(Debug)]
pub(crate) struct Module {
    executable: u64,
    pub(crate) kernels: HashMap<String, Arc<Kernel>>,
    /// The bytes from which the executable was made, if nothing else keeps them.
    _image: Option<Box<[u8]>>,
}

impl Drop for Module {
    fn drop(&mut self) {
        hsa::hsa_executable_destroy(self.executable);
    }
}

/// Loads a code object, calling HSA's functions in the same order as HIP.
fn load(device: &Device, code: Untyped, bytes: usize) -> Hip<Module> {
    const NEAR: u32 = 2;
    const FULL: u32 = 1;
    let mut executable = 0;
    check(hsa::hsa_executable_create_alt(
        FULL,
        NEAR,
        None,
        &mut executable,
    ))?;
    let mut reader = 0;
    check(hsa::hsa_code_object_reader_create_from_memory(
        code,
        bytes,
        &mut reader,
    ))?;
    let loaded =
        hsa::hsa_executable_load_agent_code_object(executable, device.agent, reader, None, None);
    check(loaded).map_err(|_| Error::INVALID_IMAGE)?;
    check(hsa::hsa_executable_freeze(executable, None))?;
    check(hsa::hsa_code_object_reader_destroy(reader))?;
    let code_object = CodeObject::read(&code.bytes(bytes)).map_err(|_| Error::INVALID_IMAGE)?;
    let kernel = |metadata: Metadata| -> Hip<(String, Arc<Kernel>)> {
        const KERNEL_OBJECT: u32 = 22;
        let name = CString::new(metadata.symbol.as_str()).map_err(|_| Error::INVALID_IMAGE)?;
        let mut symbol = 0;
        let found = hsa::hsa_executable_get_symbol_by_name(
            executable,
            Untyped(name.as_ptr().cast_mut().cast()),
            &device.agent,
            &mut symbol,
        );
        check(found).map_err(|_| Error::INVALID_IMAGE)?;
        let mut object = 0_u64;
        check(hsa::hsa_executable_symbol_get_info(
            symbol,
            KERNEL_OBJECT,
            hsa::to(&mut object),
        ))?;
        let kernel = Kernel {
            name: metadata.name.clone(),
            c_name: Box::leak(
                CString::new(metadata.name.as_str())
                    .unwrap_or_default()
                    .into_boxed_c_str(),
            ),
            device: device.index,
            object,
            metadata,
        };
        Ok((kernel.name.clone(), Arc::new(kernel)))
    };
    Ok(Module {
        executable,
        kernels: code_object
            .kernels
            .into_iter()
            .map(kernel)
            .collect::<Hip<_>>()?,
        _image: None,
    })
}

/// The runtime's own kernels for a device.
pub(crate) fn blit(device: &Device) -> Hip<Module> {
    let image = write(&device.gfx, &blit_kernels::kernels()).into_boxed_slice();
    keep(device, image)
}

/// Loads bytes that are kept with the module.
pub(crate) fn keep(device: &Device, image: Box<[u8]>) -> Hip<Module> {
    let (at, bytes) = code_for(device, Untyped(image.as_ptr().cast_mut().cast()))?;
    let mut module = load(device, at, bytes)?;
    module._image = Some(image);
    Ok(module)
}

/// Loads a bundle or a single code object in memory.
pub(crate) fn load_image(device: &Device, image: Untyped) -> Hip<Module> {
    let (at, bytes) = code_for(device, image)?;
    load(device, at, bytes)
}

/// Address and length of the code object for a device. The image itself tells its length.
fn code_for(device: &Device, image: Untyped) -> Hip<(Untyped, usize)> {
    const TABLE: usize = 4096;
    const ELF_HEADER: usize = 64;
    let none = Error::NO_BINARY;
    if image.address() == 0 {
        return Err(Error::INVALID_VALUE);
    }
    if image.bytes(BUNDLE_MAGIC.len()) == BUNDLE_MAGIC {
        // clang aligns the first entry to a page, so at least a page belongs to the bundle.
        let table = image.bytes(TABLE);
        bundle_bytes(&table).ok_or(Error::INVALID_IMAGE)?;
        let (offset, bytes) = bundle_entry(&table, &device.gfx).ok_or(none)?;
        let offset = usize::try_from(offset).map_err(|_| none)?;
        return Ok((image.add(offset), usize::try_from(bytes).map_err(|_| none)?));
    }
    let header = image.bytes(ELF_HEADER);
    if !header.starts_with(b"\x7fELF") {
        return Err(Error::INVALID_IMAGE);
    }
    // The section headers are at the end of the file.
    let number = |at: usize, bytes: usize| {
        let field = header.get(at..at + bytes).unwrap_or_default();
        field
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let end = number(0x28, 8).checked_add(number(0x3a, 2) * number(0x3c, 2));
    end.map(|end| (image, end)).ok_or(Error::INVALID_IMAGE)
}

/// A fat binary that a program registered: `__CudaFatBinaryWrapper`.
pub(crate) struct FatBinary {
    image: Untyped,
    loaded: Vec<OnceLock<Hip<Module>>>,
}

// SAFETY: the image is part of the program and never written.
unsafe impl Send for FatBinary {}
// SAFETY: as above.
unsafe impl Sync for FatBinary {}

impl FatBinary {
    fn module(&self, index: usize) -> Hip<&Module> {
        let slot = self.loaded.get(index).ok_or(Error::INVALID_DEVICE)?;
        let loaded = slot.get_or_init(|| load_image(device(index)?, self.image));
        loaded.as_ref().map_err(|error| *error)
    }
}

/// A kernel that a program registered.
struct Function {
    binary: Arc<FatBinary>,
    name: String,
    kernels: Vec<OnceLock<Hip<Arc<Kernel>>>>,
}

#[derive(Default)]
struct Registry {
    binaries: HashMap<u64, Arc<FatBinary>>,
    functions: HashMap<u64, Arc<Function>>,
}

static REGISTRY: RwLock<Option<Registry>> = RwLock::new(None);

fn registry<T>(with: impl FnOnce(&mut Registry) -> T) -> T {
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    with(registry.get_or_insert_default())
}

/// Maximum number of GPUs (as in `softgpu`): programs register kernels before HIP queries the
/// system.
const MOST_DEVICES: usize = 16;

/// Registers the fat binary of a wrapper; the handle is the wrapper's address.
pub(crate) fn register_binary(wrapper: u64, image: Untyped) {
    let binary = FatBinary {
        image,
        loaded: (0..MOST_DEVICES).map(|_| OnceLock::new()).collect(),
    };
    registry(|registry| registry.binaries.insert(wrapper, Arc::new(binary)));
}

/// Registers a kernel under the address by which the program launches it.
pub(crate) fn register_function(wrapper: u64, host: u64, name: String) {
    registry(|registry| {
        if let Some(binary) = registry.binaries.get(&wrapper) {
            let function = Function {
                binary: Arc::clone(binary),
                name,
                kernels: (0..MOST_DEVICES).map(|_| OnceLock::new()).collect(),
            };
            registry.functions.insert(host, Arc::new(function));
        }
    });
}

/// Removes a fat binary with its kernels. They stay loaded, because this is called when the program
/// ends.
pub(crate) fn unregister_binary(wrapper: u64) {
    registry(|registry| {
        if let Some(gone) = registry.binaries.remove(&wrapper) {
            registry
                .functions
                .retain(|_, function| !Arc::ptr_eq(&function.binary, &gone));
            std::mem::forget(gone);
        }
    });
}

/// The kernel for the address by which a program launches it, on a device.
pub(crate) fn kernel_of(host: u64, index: usize) -> Hip<Arc<Kernel>> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    let function = registry
        .as_ref()
        .and_then(|registry| registry.functions.get(&host));
    let function = Arc::clone(function.ok_or(Error::INVALID_DEVICE_FUNCTION)?);
    drop(registry);
    let slot = function.kernels.get(index).ok_or(Error::INVALID_DEVICE)?;
    slot.get_or_init(|| {
        let module = function.binary.module(index)?;
        let found = module.kernels.get(&function.name);
        found.cloned().ok_or(Error::INVALID_DEVICE_FUNCTION)
    })
    .clone()
}

/// Modules loaded by programs (`hipModule_t`), and functions looked up in them (`hipFunction_t`).
#[derive(Default)]
struct Loaded {
    modules: HashMap<u64, Module>,
    functions: HashMap<u64, Arc<Kernel>>,
}

static LOADED: RwLock<Option<Loaded>> = RwLock::new(None);

fn loaded<T>(with: impl FnOnce(&mut Loaded) -> T) -> T {
    let mut loaded = LOADED.write().unwrap_or_else(PoisonError::into_inner);
    with(loaded.get_or_insert_default())
}

/// Assigns a handle to a module.
pub(crate) fn add(module: Module) -> u64 {
    let handle = module.executable;
    loaded(|loaded| loaded.modules.insert(handle, module));
    handle
}

/// Unloads a module.
pub(crate) fn unload(handle: u64) -> Hip {
    let gone = loaded(|loaded| {
        let gone = loaded.modules.remove(&handle)?;
        loaded
            .functions
            .retain(|_, kernel| !gone.kernels.values().any(|own| Arc::ptr_eq(own, kernel)));
        Some(gone)
    });
    gone.map(drop).ok_or(Error::INVALID_HANDLE)
}

/// A function of a module; the handle is the address of HIP's object for it.
pub(crate) fn function(handle: u64, name: &str) -> Hip<u64> {
    loaded(|loaded| {
        let module = loaded.modules.get(&handle).ok_or(Error::INVALID_HANDLE)?;
        let kernel = Arc::clone(module.kernels.get(name).ok_or(Error::NOT_FOUND)?);
        let function = Arc::as_ptr(&kernel) as u64;
        loaded.functions.insert(function, kernel);
        Ok(function)
    })
}

/// The kernel of a function.
pub(crate) fn kernel_of_function(function: u64) -> Hip<Arc<Kernel>> {
    let loaded = LOADED.read().unwrap_or_else(PoisonError::into_inner);
    let found = loaded
        .as_ref()
        .and_then(|loaded| loaded.functions.get(&function));
    found.cloned().ok_or(Error::INVALID_HANDLE)
}

/// Whether there is a GPU at all.
pub(crate) fn any_device() -> Hip {
    if system()?.devices.is_empty() {
        Err(Error::NO_DEVICE)
    } else {
        Ok(())
    }
}
