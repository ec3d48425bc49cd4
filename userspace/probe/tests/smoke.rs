//! scratch
use gputrace_probe::{calls::*, attach::*, tasks::Tasks};
#[test]
fn loads() {
    let calls = Calls::load(&Options{backend: BackendChoice::Auto, ring_bytes: 1<<20, max_threads: 4096, follow_forks: true}).unwrap();
    println!("{}", calls.backend());
    let mut t = Tasks::load(true).unwrap();
    let mut ring = t.take_ring().unwrap();
    calls.add_every_process().unwrap();
    let mut rings = calls.rings().unwrap();
    // hipGetDeviceCount
    let out = std::process::Command::new("sh").arg("-c").arg("readelf --dyn-syms -W /usr/lib/x86_64-linux-gnu/libamdhip64.so.5 | grep ' hipGetDeviceCount@' | awk '{print $2}'").output().unwrap();
    let off = u64::from_str_radix(String::from_utf8(out.stdout).unwrap().trim(), 16).unwrap();
    let p = calls.attach("/usr/lib/x86_64-linux-gnu/libamdhip64.so.5".as_ref(), Scope::EveryProcess, &[Point{offset: off, cookie: gputrace_abi::cookie::Cookie::new(7,0,2).0}]).unwrap();
    println!("links {} fail {:?}", p.links(), p.failures);
    let s = std::process::Command::new("python3").arg("-c").arg("import ctypes; l=ctypes.CDLL('libamdhip64.so.5'); c=ctypes.c_int(); print([l.hipGetDeviceCount(ctypes.byref(c)) for _ in range(3)])").status().unwrap();
    println!("{s}");
    println!("stop {}", calls.stop().unwrap());
    for (cpu, r) in &mut rings { while let Some(i) = r.next() { println!("{cpu} {} {:x?}", i.len(), &i[..]); } }
    let mut n=0; while let Some(_) = ring.next() { n+=1; }
    println!("tasks {n} {:?}", t.counters().unwrap());
    for c in calls.counters().unwrap() { println!("{} {:?} {:?} {}", c.sequence, &c.seen[..2], c.dropped[0][0], c.unmatched_returns); }
    println!("{:?}", calls.threads().unwrap().len());
}
