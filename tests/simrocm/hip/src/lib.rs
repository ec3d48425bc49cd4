//! Stand-in for `libamdhip64` of ROCm 6.4, on the stand-in for `libhsa-runtime64`.
//!
//! Programs compiled by hipcc run on it unmodified. For each operation, it calls HSA as HIP does:
//! it reserves indices, re-arms signals, writes packets and rings doorbells through the same
//! exported functions in the same order; see `ROCm/clr`, `rocclr/device/rocm/rocvirtual.cpp`. The
//! staging step of the `gputrace-simrocm` package links it into a shared library, which gives the
//! names their versions, `hip_4.2` and later.
//!
//! # Modules
//!
//! * `api_launch`, `api_memory`, `api_device`: the exported functions, by subject; `error`: their
//!   results.
//! * `device`: GPUs and their HSA queues, which streams share. `stream`: ordered work. `signals`:
//!   completion signals, used in turn.
//! * `launch`: kernel packets. `copy`: copies by SDMA and by the runtime's own kernels. `graph`:
//!   captured work.
//! * `module`: code objects and kernels. `memory`: known allocations. `event`: points in time in
//!   streams.
//! * `hsa`: the functions of HSA that it calls.
//!
//! # Environment
//!
//! HIP's own variables: `GPU_FORCE_QUEUE_PROFILING`, `GPU_MAX_HW_QUEUES`,
//! `GPU_FORCE_BLIT_COPY_SIZE` (KB, default 16), `HIP_LAUNCH_BLOCKING`. Behaviours of newer
//! releases: [`gputrace_simrocm_core::newer`].
//!
//! # Releases
//!
//! Where the layout of a structure has changed, functions that take it carry a release in their
//! name (`hipGetDevicePropertiesR0600`); the plain names are those of ROCm 5, as in the real
//! library. So programs for `libamdhip64.so.5` and for `.so.6` both find the functions that they
//! were compiled for.

mod api_device;
mod api_launch;
mod api_memory;
mod copy;
mod device;
mod error;
mod event;
mod graph;
mod hsa;
mod launch;
mod memory;
mod module;
mod signals;
mod stream;

gputrace_simrocm_core::exports! {
    __hipRegisterFatBinary = api_launch::register_fat_binary;
    __hipUnregisterFatBinary = api_launch::unregister_fat_binary;
    __hipRegisterFunction = api_launch::register_function;
    __hipPushCallConfiguration = api_launch::push_configuration;
    __hipPopCallConfiguration = api_launch::pop_configuration;
    hipInit = api_device::init;
    hipDriverGetVersion = api_device::version;
    hipRuntimeGetVersion = api_device::version;
    hipGetDeviceCount = api_device::count;
    hipGetDevice = api_device::get;
    hipDeviceGet = api_device::device_get;
    hipDeviceGetName = api_device::name;
    hipDeviceTotalMem = api_device::total_memory;
    hipDeviceGetAttribute = api_device::attribute;
    hipGetDeviceProperties = api_device::properties_r0000;
    hipGetDevicePropertiesR0000 = api_device::properties_r0000;
    hipGetDevicePropertiesR0600 = api_device::properties_r0600;
    hipDeviceCanAccessPeer = api_device::can_access_peer;
    hipDeviceEnablePeerAccess = api_device::enable_peer_access;
    hipDeviceSynchronize = api_device::synchronize;
    hipDeviceReset = api_device::synchronize;
    hipDeviceGetStreamPriorityRange = api_device::priority_range;
    hipStreamCreate = api_device::stream_create;
    hipStreamCreateWithFlags = api_device::stream_create_with_flags;
    hipStreamCreateWithPriority = api_device::stream_create_with_priority;
    hipStreamDestroy = api_device::stream_destroy;
    hipStreamSynchronize = api_device::stream_synchronize;
    hipStreamQuery = api_device::stream_query;
    hipStreamGetFlags = api_device::stream_flags;
    hipStreamGetPriority = api_device::stream_priority;
    hipStreamWaitEvent = api_device::stream_wait_event;
    hipStreamAddCallback = api_device::stream_add_callback;
    hipLaunchHostFunc = api_device::launch_host_function;
    hipEventCreate = api_device::event_create;
    hipEventCreateWithFlags = api_device::event_create_with_flags;
    hipEventDestroy = api_device::event_destroy;
    hipEventRecord = api_device::event_record;
    hipEventSynchronize = api_device::event_synchronize;
    hipEventQuery = api_device::event_query;
    hipEventElapsedTime = api_device::event_elapsed_time;
    hipKernelNameRef = api_device::kernel_name;
    hipKernelNameRefByPtr = api_device::kernel_name_by_pointer;
    hipGetLastError = error::get_last;
    hipExtGetLastError = error::get_last;
    hipPeekAtLastError = error::peek_last;
    hipGetErrorName = error::name;
    hipGetErrorString = error::text;
    hipMalloc = api_memory::malloc;
    hipMemPoolCreate = api_memory::pool_create;
    hipMemPoolDestroy = api_memory::pool_destroy;
    hipMemPoolSetAttribute = api_memory::pool_set_attribute;
    hipMemPoolTrimTo = api_memory::pool_trim;
    hipMallocFromPoolAsync = api_memory::malloc_from_pool;
    hipMallocAsync = api_memory::malloc_async;
    hipMallocManaged = api_memory::malloc_managed;
    hipMallocHost = api_memory::malloc_host;
    hipHostMalloc = api_memory::host_malloc;
    hipHostAlloc = api_memory::host_malloc;
    hipMallocPitch = api_memory::malloc_pitch;
    hipFree = api_memory::free;
    hipFreeHost = api_memory::free;
    hipHostFree = api_memory::free;
    hipFreeAsync = api_memory::free_async;
    hipMemGetInfo = api_memory::get_info;
    hipHostRegister = api_memory::host_register;
    hipHostUnregister = api_memory::host_unregister;
    hipHostGetDevicePointer = api_memory::host_get_device_pointer;
    hipPointerGetAttributes = api_memory::pointer_get_attributes;
    hipMemcpy = api_memory::memcpy;
    hipMemcpyAsync = api_memory::memcpy_async;
    hipMemcpyWithStream = api_memory::memcpy_with_stream;
    hipMemcpyHtoD = api_memory::memcpy_directed;
    hipMemcpyDtoH = api_memory::memcpy_directed;
    hipMemcpyDtoD = api_memory::memcpy_directed;
    hipMemcpyHtoDAsync = api_memory::memcpy_directed_async;
    hipMemcpyDtoHAsync = api_memory::memcpy_directed_async;
    hipMemcpyDtoDAsync = api_memory::memcpy_directed_async;
    hipMemcpyPeer = api_memory::memcpy_peer;
    hipMemcpyPeerAsync = api_memory::memcpy_peer_async;
    hipMemcpy2D = api_memory::memcpy_2d;
    hipMemcpy2DAsync = api_memory::memcpy_2d_async;
    hipMemset = api_memory::memset;
    hipMemsetAsync = api_memory::memset_async;
    hipMemsetD8 = api_memory::memset_d8;
    hipMemsetD8Async = api_memory::memset_d8_async;
    hipMemsetD16 = api_memory::memset_d16;
    hipMemsetD16Async = api_memory::memset_d16_async;
    hipMemsetD32 = api_memory::memset_d32;
    hipMemsetD32Async = api_memory::memset_d32_async;
    hipSetDevice = api_launch::set_device;
    hipLaunchKernel = api_launch::launch_kernel;
    hipExtLaunchKernel = api_launch::ext_launch_kernel;
    hipLaunchCooperativeKernel = api_launch::launch_cooperative_kernel;
    hipModuleLaunchKernel = api_launch::module_launch_kernel;
    hipModuleLaunchCooperativeKernel = api_launch::module_launch_cooperative_kernel;
    hipModuleLoad = api_launch::module_load;
    hipModuleLoadData = api_launch::module_load_data;
    hipModuleLoadDataEx = api_launch::module_load_data_ex;
    hipModuleUnload = api_launch::module_unload;
    hipModuleGetFunction = api_launch::module_get_function;
    hipStreamBeginCapture = api_launch::begin_capture;
    hipStreamEndCapture = api_launch::end_capture;
    hipStreamIsCapturing = api_launch::is_capturing;
    hipGraphCreate = api_launch::graph_create;
    hipGraphDestroy = api_launch::graph_destroy;
    hipGraphInstantiate = api_launch::graph_instantiate;
    hipGraphInstantiateWithFlags = api_launch::graph_instantiate_with_flags;
    hipGraphLaunch = api_launch::graph_launch;
    hipGraphExecDestroy = api_launch::graph_exec_destroy;
    hipExtModuleLaunchKernel = api_launch::ext_module_launch_kernel;
    _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j = api_launch::ext_module_launch_kernel;
}
