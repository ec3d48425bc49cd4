use gputrace_capture::meta::Function;

use super::*;
use crate::model::values::Pointee;

fn call(args: [u64; 6], stack: [u64; 8]) -> Call {
    Call {
        function: 0,
        domain: 0,
        pid: 1,
        tid: 1,
        begin: 0,
        end: 1,
        correlation: 1,
        parent: 0,
        depth: 0,
        cpu: 0,
        how: CallEnd::Returned(0xffff_ffff_0000_0064),
        stack_readable: true,
        args,
        stack,
        request: None,
        range: 0,
        external: None,
        stream_id: 0,
        stack_number: None,
        pointees: Vec::new(),
    }
}

fn info(parameters: Option<Vec<(ValueKind, ArgSlot)>>, returns: ValueKind) -> FunctionInfo {
    let parameters = parameters.map(|list| {
        list.into_iter()
            .enumerate()
            .map(|(index, (kind, at))| Parameter {
                name: format!("p{index}"),
                c_type: String::new(),
                kind,
                at,
                ..Parameter::default()
            })
            .collect()
    });
    FunctionInfo {
        function: Function {
            parameters,
            returns,
            ..Function::default()
        },
        domain: None,
        library: String::new(),
        build_id: String::new(),
        range: None,
    }
}

#[test]
fn each_kind_is_read_and_shown() {
    use ArgSlot::{Register, Stack, Unrecorded};
    let call = call(
        [
            0xffff_ffff_ffff_fffe,
            0x0000_0002_0000_0010,
            0xdead_beef_0000_0003,
            0x101,
            0,
            7,
        ],
        {
            let mut stack = [0; 8];
            stack[7] = 0x7fff_0000_1000;
            stack
        },
    );
    let cases = [
        (ValueKind::Signed(4), Register(0), "-2"),
        (ValueKind::Signed(1), Register(3), "1"),
        (ValueKind::Signed(8), Register(0), "-2"),
        (ValueKind::Signed(0), Register(0), "-2"),
        (ValueKind::Unsigned(1), Register(0), "254"),
        (ValueKind::Unsigned(4), Register(0), "4294967294"),
        (ValueKind::Unsigned(200), Register(5), "7"),
        (ValueKind::Bool, Register(3), "true"),
        (ValueKind::Bool, Register(4), "false"),
        (ValueKind::Dim3, Register(1), "{16,2,3}"),
        (ValueKind::Dim3, Register(5), "(not recorded)"),
        (
            ValueKind::HipError,
            Register(5),
            "7 hipErrorProfilerAlreadyStarted",
        ),
        (ValueKind::HsaStatus, Register(5), "7"),
        (ValueKind::Pointer, Stack(7), "0x7fff00001000"),
        (ValueKind::Pointer, Stack(8), "(not recorded)"),
        (ValueKind::Float, Register(0), "(not recorded)"),
        (ValueKind::CString, Unrecorded, "(not recorded)"),
        (ValueKind::Word, Register(200), "(not recorded)"),
    ];
    let info = info(
        Some(cases.iter().map(|(kind, at, _)| (*kind, *at)).collect()),
        ValueKind::HipError,
    );
    let shown: Vec<String> = decoded(&info, &call)
        .map(|(_, value)| value.to_string())
        .collect();
    assert_eq!(shown, cases.map(|(_, _, expected)| expected));
    assert_eq!(
        returned(&info, &call).unwrap().to_string(),
        "100 hipErrorNoDevice"
    );
}

#[test]
fn pointers_are_followed_if_the_call_succeeded() {
    use ArgSlot::{Register, Stack};
    let data = |word, at_return, data| Pointee {
        word,
        at_return,
        data,
    };
    let bytes = |bytes: &[u8]| PointeeData::Bytes(bytes.to_vec());
    let text = |text: &str, cut| PointeeData::Text {
        text: text.to_owned(),
        cut,
    };
    let mut call = call([0x1000, 0x2000, 0x3000, 0, 0x5000, 3], [0x7000; 8]);
    call.how = CallEnd::Returned(0);
    call.pointees = vec![
        data(0, true, bytes(&0x7f12_3456_7000_u64.to_le_bytes())),
        data(1, false, text("vector_add", false)),
        data(2, true, bytes(&0.002_f32.to_le_bytes())),
        data(4, true, PointeeData::Unreadable),
        data(6, true, bytes(&2_u32.to_le_bytes())),
        data(7, false, text("cut", true)),
    ];
    let parameter = |c_type: &str, kind, at, stored| Parameter {
        name: "p".to_owned(),
        c_type: c_type.to_owned(),
        kind,
        at,
        stored,
        ..Parameter::default()
    };
    let pointer = |c_type, at, stored| parameter(c_type, ValueKind::Pointer, at, Some(stored));
    let mut info = info(None, ValueKind::HipError);
    info.function.parameters = Some(vec![
        pointer("void **", Register(0), ValueKind::Pointer),
        parameter("const char *", ValueKind::CString, Register(1), None),
        pointer("float *", Register(2), ValueKind::Real(4)),
        pointer("int *", Register(3), ValueKind::Signed(4)),
        pointer("int *", Register(4), ValueKind::Signed(4)),
        parameter("hipMemcpyKind", ValueKind::Unsigned(4), Register(5), None),
        pointer("hipMemcpyKind *", Stack(0), ValueKind::Unsigned(4)),
        parameter("const char *", ValueKind::CString, Stack(1), None),
        parameter("const char *", ValueKind::CString, Stack(2), None),
    ]);
    let shown = |call: &Call| -> Vec<String> {
        decoded(&info, call)
            .map(|(_, value)| value.to_string())
            .collect()
    };
    assert_eq!(
        shown(&call),
        [
            "0x7f1234567000",
            "vector_add",
            "0.002",
            "0x0",
            "(at 0x5000)",
            "hipMemcpyDeviceToDevice",
            "hipMemcpyDeviceToHost",
            "cut…",
            "0x7000",
        ]
    );
    call.how = CallEnd::Returned(2);
    let failed = shown(&call);
    assert_eq!(failed[..2], ["(at 0x1000)", "vector_add"]);
    call.pointees
        .push(data(RESULT_WORD, true, text("hipSuccess", false)));
    info.function.returns = ValueKind::CString;
    assert_eq!(returned(&info, &call).unwrap().to_string(), "hipSuccess");
}

#[test]
fn flags_are_shown_by_name() {
    let mut call = call([3, 0x1000, 5, 2, 0, 0], [0; 8]);
    call.how = CallEnd::Returned(0);
    call.pointees = vec![Pointee {
        word: 1,
        at_return: true,
        data: PointeeData::Bytes(0x4000_0100_u32.to_le_bytes().to_vec()),
    }];
    let flags = |values: &str, register, stored: Option<ValueKind>| Parameter {
        name: "flags".to_owned(),
        kind: stored.map_or(ValueKind::Unsigned(4), |_| ValueKind::Pointer),
        at: ArgSlot::Register(register),
        stored,
        values: values.to_owned(),
        ..Parameter::default()
    };
    let mut info = info(None, ValueKind::HipError);
    info.function.parameters = Some(vec![
        flags("hipHostMalloc", 0, None),
        flags("hipHostMalloc", 1, Some(ValueKind::Unsigned(4))),
        flags("hipStream", 4, None),
        flags("hsa_queue_type_t", 3, None),
        flags("hsa_queue_type_t", 2, None),
        flags("of a newer version", 0, None),
    ]);
    let shown: Vec<String> = decoded(&info, &call)
        .map(|(_, value)| value.to_string())
        .collect();
    assert_eq!(
        shown,
        [
            "hipHostMallocPortable|hipHostMallocMapped",
            "hipHostMallocCoherent|0x100",
            "hipStreamDefault",
            "HSA_QUEUE_TYPE_COOPERATIVE",
            "5",
            "3",
        ]
    );
}

#[test]
fn an_unreadable_stack_is_not_shown_as_zero() {
    let mut call = call([1; 6], [0; 8]);
    call.stack_readable = false;
    let info = info(
        Some(vec![
            (ValueKind::Word, ArgSlot::Register(0)),
            (ValueKind::Word, ArgSlot::Stack(0)),
        ]),
        ValueKind::Void,
    );
    let values: Vec<ArgValue> = decoded(&info, &call).map(|(_, value)| value).collect();
    assert_eq!(values, [ArgValue::Hex(1), ArgValue::Unreadable]);
    assert_eq!(returned(&info, &call), None);
}

#[test]
fn without_catalogue_entry_the_registers_are_shown() {
    let mut call = call([1, 2, 3, 4, 5, 6], [0; 8]);
    let unknown = info(None, ValueKind::Word);
    let shown: Vec<String> = decoded(&unknown, &call)
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        shown,
        [
            "arg0=0x1", "arg1=0x2", "arg2=0x3", "arg3=0x4", "arg4=0x5", "arg5=0x6"
        ]
    );
    assert_eq!(
        decoded(&info(Some(vec![]), ValueKind::Void), &call).count(),
        0
    );
    call.how = CallEnd::ThreadExited;
    assert_eq!(returned(&unknown, &call), None);
}

/// A function of the catalogue as a recording of HIP 6 describes it.
fn catalogued(name: &str) -> FunctionInfo {
    let signature = gputrace_catalog::signature(name).unwrap();
    let mut info = info(None, signature.return_kind());
    info.function.name = name.to_owned();
    info.function.parameters = Some(signature.parameters_in(Some(6)));
    info
}

fn lines(info: &FunctionInfo, call: &Call) -> Vec<String> {
    let all = decoded(info, call);
    all.map(|(name, value)| format!("{name}={value}")).collect()
}

fn read(word: u8, at_return: bool, bytes: &[u8]) -> Pointee {
    Pointee {
        word,
        at_return,
        data: PointeeData::Bytes(bytes.to_vec()),
    }
}

#[test]
fn structures_by_value_are_their_fields() {
    let info = catalogued("hipMemset3D");
    // hipPitchedPtr, then hipExtent; `value` is in a register.
    let mut call = call(
        [0xffff_ffff_0000_0007, 0, 0, 0, 0, 0],
        [0x1000, 256, 200, 4, 200, 4, 2, 99],
    );
    call.how = CallEnd::Returned(0);
    assert_eq!(
        lines(&info, &call),
        [
            "pitchedDevPtr.ptr=0x1000",
            "pitchedDevPtr.pitch=256",
            "pitchedDevPtr.xsize=200",
            "pitchedDevPtr.ysize=4",
            "value=7",
            "extent.width=200",
            "extent.height=4",
            "extent.depth=2",
        ]
    );
    let positions: Vec<_> = typed(&info, &call)
        .map(|argument| (argument.position, argument.c_type))
        .collect();
    assert_eq!(positions[3..6], [(0, "size_t"), (1, "int"), (2, "size_t")]);
    call.stack_readable = false;
    assert_eq!(
        lines(&info, &call),
        [
            "pitchedDevPtr=(not readable)",
            "value=7",
            "extent=(not readable)"
        ]
    );
}

#[test]
fn structures_behind_pointers_follow_them() {
    let info = catalogued("hipMemcpy3D");
    let mut call = call([0x7000, 0, 0, 0, 0, 0], [0; 8]);
    call.how = CallEnd::Returned(0);
    let mut parms = Vec::new();
    for word in 1..=20_u64 {
        parms.extend_from_slice(&word.to_le_bytes());
    }
    parms.truncate(156);
    parms[152] = 2;
    call.pointees = vec![read(0, false, &parms)];
    let shown = lines(&info, &call);
    assert_eq!((shown.len(), shown[0].as_str()), (21, "p=0x7000"));
    for field in [
        "p.srcPos.x=2",
        "p.srcPtr.ptr=0x5",
        "p.srcPtr.pitch=6",
        "p.extent.width=17",
        "p.extent.depth=19",
        "p.kind=hipMemcpyDeviceToHost",
    ] {
        assert!(shown.iter().any(|line| line == field), "{field}: {shown:?}");
    }
    // An input is shown whatever the result.
    call.how = CallEnd::Returned(1);
    assert_eq!(lines(&info, &call), shown);
    call.how = CallEnd::RecordingStopped;
    assert_eq!(lines(&info, &call), shown);
    // A record with fewer bytes.
    call.pointees = vec![read(0, false, &parms[..152])];
    let cut = lines(&info, &call);
    assert_eq!((cut.len(), cut[20].as_str()), (21, "p.kind=(not recorded)"));
    call.pointees = vec![Pointee {
        word: 0,
        at_return: true,
        data: PointeeData::Unreadable,
    }];
    assert_eq!(lines(&info, &call), ["p=(at 0x7000)"]);
    call.args[0] = 0;
    call.pointees.clear();
    assert_eq!(lines(&info, &call), ["p=0x0"]);
}

#[test]
fn structures_that_functions_store_are_known_of_calls_that_succeeded() {
    let info = catalogued("hipPointerGetAttributes");
    let mut call = call([0x7000, 0x9000, 0, 0, 0, 0], [0; 8]);
    let attributes = [
        [2, 0, 0, 0, 1, 0, 0, 0],
        [0, 0x90, 0, 0, 0, 0, 0, 0],
        [0; 8],
    ]
    .concat();
    call.pointees = vec![read(0, true, &[&attributes[..], &[1, 0, 0, 0]].concat())];
    call.how = CallEnd::Returned(0);
    assert_eq!(
        lines(&info, &call),
        [
            "attributes=0x7000",
            "attributes.type=hipMemoryTypeDevice",
            "attributes.device=1",
            "attributes.devicePointer=0x9000",
            "attributes.hostPointer=0x0",
            "attributes.isManaged=1",
            "ptr=0x9000",
        ]
    );
    call.how = CallEnd::Returned(1);
    assert_eq!(
        lines(&info, &call),
        ["attributes=(at 0x7000)", "ptr=0x9000"]
    );

    let info = catalogued("hipGetDevicePropertiesR0600");
    let name = |bytes: &[u8]| {
        let mut call = call.clone();
        call.how = CallEnd::Returned(0);
        call.pointees = vec![read(0, true, bytes)];
        lines(&info, &call)[1].clone()
    };
    assert_eq!(
        name(b"AMD Instinct MI300X\0\xff\xff"),
        "prop.name=AMD Instinct MI300X"
    );
    assert_eq!(name(b"AMD\xff\0"), "prop.name=AMD…");
    assert_eq!(
        name(&[b'x'; 255]),
        format!("prop.name={}…", "x".repeat(255))
    );
    assert_eq!(name(b""), "prop.name=…");
}

#[test]
fn launches_of_newer_releases_say_what_is_launched() {
    let info = catalogued("hipLaunchKernelExC");
    let mut call = call([0x7000, 0x1234, 0x8000, 0, 0, 0], [0; 8]);
    call.how = CallEnd::Returned(0);
    let words: Vec<u8> = [4_u32, 5, 6, 64, 2, 1, 512, 0, 0x5000, 0, 0, 0, 1]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    call.pointees = vec![read(0, false, &words)];
    assert_eq!(
        lines(&info, &call),
        [
            "config=0x7000",
            "config.gridDim={4,5,6}",
            "config.blockDim={64,2,1}",
            "config.dynamicSmemBytes=512",
            "config.stream=0x5000",
            "config.numAttrs=1",
            "fPtr=0x1234",
            "args=0x8000",
        ]
    );
}

#[test]
fn every_argument_has_a_place_among_the_names() {
    let mut call = call([0x7000; 6], [1; 8]);
    for how in [CallEnd::Returned(0), CallEnd::Returned(1)] {
        call.how = how;
        for signature in gputrace_catalog::signatures() {
            let info = catalogued(signature.name);
            let bytes = vec![1; 255];
            call.pointees = (0..=RESULT_WORD)
                .map(|word| read(word, word % 2 == 0, &bytes))
                .collect();
            let names: Vec<&str> = names(&info).collect();
            let declared: Vec<_> = declared(&info, &call).collect();
            let placed: Vec<_> = placed(&info, &call)
                .map(|(slot, value)| (names[slot], value))
                .collect();
            assert_eq!(placed, declared, "{}", signature.name);
        }
    }
}
