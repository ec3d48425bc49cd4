// The kernels of `gputrace verify`: they keep a GPU busy for a known number of its clock's ticks, and write down when.
//
// One source for all instruction sets. `cargo xtask gen-objects` puts a target's name in the place of @gfx@, assembles it by
// LLVM and links it into the code object beside this file; userspace/verify/src/objects.rs has the list.
//
// Arguments, at the address in s[0:1]:
//   0   u64: how many ticks to spin
//   8   u64: address of two u64, where a wave stores what the clock said at its begin and at its end; 0 for nowhere
//
// The clock is the constant one that counts for the stamps in completion signals (100 MHz from gfx9 on): S_MEMREALTIME up to
// gfx10, a message from gfx11 on (LLVM's AMDGPUUsage and AMD's ISA manuals).

	.amdgcn_target "amdgcn-amd-amdhsa--@gfx@"
	// The oldest version that all supported releases of ROCm load, and new ones still do.
	.amdhsa_code_object_version 4

	.macro wait_for_scalars
	.if .amdgcn.gfx_generation_number >= 12
	s_wait_kmcnt 0x0
	.else
	s_waitcnt lgkmcnt(0)
	.endif
	.endm

	.macro read_clock registers:vararg
	.if .amdgcn.gfx_generation_number >= 11
	s_sendmsg_rtn_b64 \registers, sendmsg(MSG_RTN_GET_REALTIME)
	.else
	s_memrealtime \registers
	.endif
	wait_for_scalars
	.endm

	// A kernel of this name, with this many bytes of private memory for each work-item. It declares them and does not touch
	// them: the packet processor has to see to it that they are there.
	.macro kernel name, private, scratch
	.text
	.p2align 8
	.globl \name
	.type \name, @function
\name:
	s_load_dwordx4 s[4:7], s[0:1], 0x0
	wait_for_scalars
	read_clock s[8:9]
	s_mov_b32 s14, 0
.Lspin_\name:
	read_clock s[10:11]
	s_sub_u32 s12, s10, s8
	s_subb_u32 s13, s11, s9
	// A kernel must end, even if the clock stands still.
	s_add_u32 s14, s14, 1
	s_cmp_gt_u32 s14, 0x400000
	s_cbranch_scc1 .Ldone_\name
	s_cmp_lg_u32 s13, 0
	s_cbranch_scc1 .Ldone_\name
	s_cmp_lt_u32 s12, s4
	s_cbranch_scc1 .Lspin_\name
.Ldone_\name:
	s_or_b32 s13, s6, s7
	s_cmp_eq_u32 s13, 0
	s_cbranch_scc1 .Lend_\name
	v_mov_b32_e32 v0, 0
	v_mov_b32_e32 v2, s8
	v_mov_b32_e32 v3, s9
	v_mov_b32_e32 v4, s10
	v_mov_b32_e32 v5, s11
	global_store_dwordx4 v0, v[2:5], s[6:7]
.Lend_\name:
	s_endpgm
	// Instructions are fetched ahead of the end.
	.rept 64
	.if .amdgcn.gfx_generation_number >= 10
	s_code_end
	.else
	s_nop 0
	.endif
	.endr
.Lsize_\name:
	.size \name, .Lsize_\name-\name

	.rodata
	.p2align 6
	.amdhsa_kernel \name
	.amdhsa_user_sgpr_kernarg_segment_ptr 1
	.amdhsa_kernarg_size 16
	.amdhsa_private_segment_fixed_size \private
	.amdhsa_next_free_vgpr 6
	.amdhsa_next_free_sgpr 16
@descriptor@
	.end_amdhsa_kernel
	.endm

	kernel gputrace_spin_short, 0, 0
	kernel gputrace_spin_medium, 0, 0
	kernel gputrace_spin_long, 0, 0
	kernel gputrace_spin_scratch, 1024, 1

	.amdgpu_metadata
amdhsa.version: [ 1, 1 ]
amdhsa.target: amdgcn-amd-amdhsa--@gfx@
amdhsa.kernels:
@kernels@
	.end_amdgpu_metadata
