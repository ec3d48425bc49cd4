//! Names against what binutils' `c++filt` makes of them, and those that it does not know against
//! LLVM's.
#![allow(missing_docs, reason = "a test")]

use gputrace_demangle::demangle;

/// As c++filt 2.40 writes them (`c++filt --no-verbose`).
const LIKE_BINUTILS: &[(&str, &str)] = &[
    ("_Z1fILi3EEvRAT__i", "void f<3>(int (&) [3])"),
    (
        "_Z1fIiEDTplfp_fp_ET_",
        "decltype ({parm#1}+{parm#1}) f<int>(int)",
    ),
    (
        "_Z1fIJidEEDTfrplfp_EDpT_",
        "decltype (({parm#1}+...)) f<int, double>(int, double)",
    ),
    ("_Z3fooIJiEEvDpOT_", "void foo<int>(int&&)"),
    ("_Z1fPU3AS1f", "f(float AS1*)"),
    ("_ZN1AcvT_IfEEv", "A::operator float<float>()"),
    ("_ZN1AIiEcvT_IfEEv", "A<int>::operator float<float>()"),
    ("_Z1fDv4_f", "f(float __vector(4))"),
    ("_Z1fDF16_", "f(_Float16)"),
    ("_Z1fDF16bDu", "f(std::bfloat16_t, char8_t)"),
    ("_ZN1fDC1a1bEE", "f::[a, b]"),
    ("_ZDC1a1bE", "[a, b]"),
    ("_Z1fIXL_ZL1gvEEEvv", "void f<g()>()"),
    (
        "_Z1fIXtl1ALi1ELf3f800000EEEEvv",
        "void f<A{1, (float)[3f800000]}>()",
    ),
    ("_Z1fILf3f800000EEvv", "void f<(float)[3f800000]>()"),
    ("_Z1fILDn0EEvv", "void f<(decltype(nullptr))0>()"),
    ("_Z1fIJiiEEv1AIXsZT_EE", "void f<int, int>(A<2>)"),
    ("_Z1fIJLi1ELi2EEEv1AIXspT_EE", "void f<1, 2>(A<1, 2>)"),
    (
        "_ZZ4mainENKUlT_E_clIiEEDaS_",
        "auto main::{lambda(auto:1)#1}::operator()<int>(int) const",
    ),
    (
        "_Z6kernelIZ4mainEUlfE_EvT_.kd",
        "void kernel<main::{lambda(float)#1}>(main::{lambda(float)#1}) [clone .kd]",
    ),
    ("_Z1fv.isra.0.cold", "f() [clone .isra.0] [clone .cold]"),
    ("_Z1fILin1EEvv", "void f<-1>()"),
    ("_Z1fILh1ELc65EEvv", "void f<(unsigned char)1, (char)65>()"),
    (
        "_ZN2ns6kernelILNS_4ModeE1EEEvv",
        "void ns::kernel<(ns::Mode)1>()",
    ),
    ("_Z1fM1AKFivE", "f(int (A::*)() const)"),
    ("_Z1fM1Ai", "f(int A::*)"),
    ("_Z1fPFPFviEfE", "f(void (*(*)(float))(int))"),
    ("_Z1fRA3_A4_Ki", "f(int const (&) [3][4])"),
    ("_ZTCN1AE0_N1BE", "construction vtable for B-in-A"),
    ("_ZThn8_N1A1fEv", "non-virtual thunk to A::f()"),
    ("_ZTch0_h8_N1A1fEv", "covariant return thunk to A::f()"),
    ("_ZZN1A1fEvE1x_0", "A::f()::x"),
    (
        "_ZZ1fiEd_NKUlvE_clEv",
        "f(int)::{default arg#1}::{lambda()#1}::operator()() const",
    ),
    ("_Z1fIXquLb1ELi1ELi2EEEvv", "void f<(true)?(1) : (2)>()"),
    ("_Z1fIXgtLi1ELi2EEEvv", "void f<((1)>(2))>()"),
    (
        "_Z1fIiEvDTnw_T_piLi1EEE",
        "void f<int>(decltype (new int(1)))",
    ),
    (
        "_Z1fIiEvDTcvT__Li1ELi2EEE",
        "void f<int>(decltype ((int)(1, 2)))",
    ),
    (
        "_Z1fIiEvDTscT_Li1EE",
        "void f<int>(decltype (static_cast<int>(1)))",
    ),
    ("_Z1fIiEvDTstT_E", "void f<int>(decltype (sizeof (int)))"),
    (
        "_Z1fIiEvDTszfp_E",
        "void f<int>(decltype (sizeof {parm#1}))",
    ),
    ("_Z1fIiEvDTdtfp_1xE", "void f<int>(decltype ({parm#1}.x))"),
    ("_Z1fIiEvDTptfp_1xE", "void f<int>(decltype ({parm#1}->x))"),
    ("_Z1fIiEvDTclL_Z1gvEEE", "void f<int>(decltype (g()))"),
    ("_Z1fIiEvDTcl1gfp_EE", "void f<int>(decltype (g({parm#1})))"),
    (
        "_Z1fIiEvDTixfp_Li0EE",
        "void f<int>(decltype ({parm#1}[0]))",
    ),
    ("_Z1fIiEvDTppfp_E", "void f<int>(decltype ({parm#1}++))"),
    ("_Z1fIiEvDTpp_fp_E", "void f<int>(decltype (++{parm#1}))"),
    ("_Z1fIiEvDTntsrT_1vE", "void f<int>(decltype (!int::v))"),
    ("_Z1fIiEvDTsrNT_1aE1vE", "void f<int>(decltype (int::a::v))"),
    ("_Z1fIiEvDTgssr1aE1vE", "void f<int>(decltype (::a::v))"),
    ("_Z1fIiEvDTtrE", "void f<int>(decltype (throw))"),
    ("_Z1fIiEvDTtwfp_E", "void f<int>(decltype (throw {parm#1}))"),
    ("_Z1fIiEvDTilLi1ELi2EEE", "void f<int>(decltype ({1, 2}))"),
    ("_Zli2_xy", "operator\"\" _x(unsigned long long)"),
    ("_Zplii", "operator+(int, int)"),
    ("_ZdlPv", "operator delete(void*)"),
    (
        "_ZnwmSt11align_val_t",
        "operator new(unsigned long, std::align_val_t)",
    ),
    (
        "_ZNSsC1Ev",
        "std::basic_string<char, std::char_traits<char>, std::allocator<char> >::basic_string()",
    ),
    ("_ZNSaIcED1Ev", "std::allocator<char>::~allocator()"),
    (
        "_ZNKSt8functionIFvvEEclEv",
        "std::function<void ()>::operator()() const",
    ),
    (
        "_ZN9__gnu_cxx6__stoaIlicJiEEET0_PFT_PKT1_PPS3_DpT2_EPKcS5_PmS9_",
        "int __gnu_cxx::__stoa<long, int, char, int>(long (*)(char const*, char**, int), cha\
         r const*, char const*, unsigned long*, int)",
    ),
    (
        "_ZN4llvm10checkedAddIiEENSt9enable_ifIXsr3stdE11is_signed_vIT_EESt8optionalIS2_EE4ty\
         peES2_S2_",
        "std::enable_if<std::is_signed_v<int>, std::optional<int> >::type llvm::checkedAdd<in\
         t>(int, int)",
    ),
    (
        "_ZTIN4llvm13FormatAdapterIRA16_KcEE",
        "typeinfo for llvm::FormatAdapter<char const (&) [16]>",
    ),
    (
        "_ZTSZL20preorderVisitOneRootIN4llvm17PGOCtxProfContextEEvRT_NS0_12function_refIFvS3_\
         EEEEUlS3_E_",
        "typeinfo name for preorderVisitOneRoot<llvm::PGOCtxProfContext>(llvm::PGOCtxProfCont\
         ext&, llvm::function_ref<void (llvm::PGOCtxProfContext&)>)::{lambda(auto:1&)#1}",
    ),
    (
        "_ZNK4llvm5MachO15ArchitectureSetcvNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcE\
         EEEv",
        "llvm::MachO::ArchitectureSet::operator std::__cxx11::basic_string<char, std::char_tr\
         aits<char>, std::allocator<char> >() const",
    ),
    ("_ZL5ClassB5cxx11", "Class[abi:cxx11]"),
    (
        "_ZTWN4llvm8parallel11threadIndexE",
        "TLS wrapper function for llvm::parallel::threadIndex",
    ),
    (
        "_ZGVZN4llvm4errsEvE1S",
        "guard variable for llvm::errs()::S",
    ),
    (
        "_ZTv0_n24_NSiD0Ev",
        "virtual thunk to std::basic_istream<char, std::char_traits<char> >::~basic_istream()",
    ),
    ("_ZN12_GLOBAL__N_11sE", "(anonymous namespace)::s"),
];

/// Names that c++filt 2.40 does not know, above all those with clang's declarations of template
/// parameters. The declarations are as llvm-cxxfilt 22 has them, in the style of c++filt.
const NEWER: &[(&str, &str)] = &[
    (
        "_ZN12rocrand_impl4host6detail9generatorINS0_6configETnDaXadL_ZNS0_4normEvEEEEvPT_",
        "void rocrand_impl::host::detail::generator<rocrand_impl::host::config, &rocrand_impl\
         ::host::norm>(rocrand_impl::host::config*)",
    ),
    ("_Z1fITnDaXadL_Z1gvEEEvv", "void f<&(g())>()"),
    ("_Z6kernelITnPFvvEXadL_Z1gvEEEvv", "void kernel<&(g())>()"),
    (
        "_Z6kernelITnPFvvEXadL_ZN2ns1gEvEEEvv",
        "void kernel<&ns::g>()",
    ),
    ("_Z3fooITk8IntegraliEvT_", "void foo<int>(int)"),
    ("_Z3fooITk4SameIiEiEvT_", "void foo<int>(int)"),
    ("_Z3fooITpTnDaJLi1ELi2EEEvv", "void foo<1, 2>()"),
    ("_Z3fooITtTyE3VecEvv", "void foo<Vec>()"),
    (
        "_Z1fIiEvT_QsrT_5value",
        "void f<int>(int) requires int::value",
    ),
    ("_Z1fIiQ1cIT_EEvS0_", "void f<int>(int)"),
    (
        "_ZN3FooIiE6methodITk4TrueIT_EiEEvS3_",
        "void Foo<int>::method<int>(int)",
    ),
    ("_Z1fDB8_", "f(_BitInt(8))"),
    ("_ZNH1S3fooES_", "S::foo(this S)"),
    (
        "_ZZ4mainENKUlTyT_E_clIiEEDaS_",
        "auto main::{lambda<typename $T>($T)#1}::operator()<int>(int) const",
    ),
    ("_Z1fPKDoFvvE", "f(void (*)() const noexcept)"),
    (
        "_Z1fIiEvDTnxfp_E",
        "void f<int>(decltype (noexcept({parm#1})))",
    ),
    (
        "_ZN4llvm20MCAsmParserExtension15HandleDirectiveIN12_GLOBAL__N_113WasmAsmParserETnMT_\
         FbNS_9StringRefENS_5SMLocEEXadL_ZNS3_18parseDirectiveSizeES5_S6_EEEEbPS0_S5_S6_",
        "bool llvm::MCAsmParserExtension::HandleDirective<(anonymous namespace)::WasmAsmParse\
         r, &(anonymous namespace)::WasmAsmParser::parseDirectiveSize>(llvm::MCAsmParserExten\
         sion*, llvm::StringRef, llvm::SMLoc)",
    ),
    ("_Z1f3BarITn3fooLi1EE", "f(Bar<1>)"),
    ("_Z1fI3BarITnT_Li1EEEvv", "void f<Bar<1> >()"),
];

#[test]
fn names_are_written_like_those_of_binutils() {
    for (mangled, name) in LIKE_BINUTILS {
        assert_eq!(demangle(mangled).as_deref(), Some(*name), "{mangled}");
    }
}

#[test]
fn newer_names() {
    for (mangled, name) in NEWER {
        assert_eq!(demangle(mangled).as_deref(), Some(*name), "{mangled}");
    }
}

#[test]
fn what_is_no_name_stays_as_it_is() {
    for mangled in [
        "_Z1fILb1EEvPDO1LE",
        "_Z1fIXsZT_EJiEEvv",
        "_Z1fIiEvDTnwT_E",
        "_Z3fo",
        "_Z1fS_",
        "_Z1fT_",
        "_Z1fIiEvT0_",
        "_Z99999999999999999999f",
        "_ZN1aEvE",
        "_Z1fvv_",
        "_Z0",
        "_Z1\u{e9}v",
    ] {
        assert_eq!(demangle(mangled), None, "{mangled}");
    }
}
