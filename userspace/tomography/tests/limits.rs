//! Arbitrary input, and the cost of large inputs.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "it measures itself and prints that"
)]

mod simulator;

use gputrace_tomography::{Exact, Look, Packet, Task, Told, Tomograph};
use proptest::prelude::*;
use simulator::{Duration, Launch, Order, Random, Scenario, given};

#[derive(Clone, Debug)]
enum Step {
    Packet(u32, Packet),
    Look(u32, Look),
    /// Time, read index, and the packet's own index.
    Doorbell(u32, u64, u64, u64),
    End(u32),
    Solve,
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..50_000_000_u64, 1 => any::<u64>(), 1 => Just(0)]
}

fn packet() -> impl Strategy<Value = Packet> {
    let task = prop_oneof![6 => (0..5_u32).prop_map(Task::Class), 1 => Just(Task::Nothing), 1 => Just(Task::Unknown)];
    let exact = (time(), time(), 0..1_000_u64).prop_map(|(begin, end, uncertainty)| Exact {
        begin,
        end,
        uncertainty,
    });
    (
        prop_oneof![9 => 0..200_u64, 1 => any::<u64>()],
        time(),
        task,
        any::<bool>(),
        proptest::option::of(exact),
        proptest::option::of(time()),
    )
        .prop_map(|(index, submitted, task, waits, exact, ended_by)| Packet {
            index,
            submitted,
            task,
            waits,
            exact,
            ended_by,
        })
}

fn look() -> impl Strategy<Value = Look> {
    let index = || prop_oneof![9 => 0..200_u64, 1 => any::<u64>()];
    (time(), index(), index(), time()).prop_map(|(time, read_index, write_index, before)| Look {
        time,
        read_index,
        write_index,
        before,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..2_u32, packet()).prop_map(|(queue, packet)| Step::Packet(queue, packet)),
        10 => (0..2_u32, look()).prop_map(|(queue, look)| Step::Look(queue, look)),
        5 => (0..2_u32, time(), 0..200_u64, any::<u64>())
            .prop_map(|(queue, time, read, index)| Step::Doorbell(queue, time, read, index)),
        1 => (0..2_u32).prop_map(Step::End),
        1 => Just(Step::Solve),
    ]
}

fn is_sound(tomograph: &Tomograph) -> bool {
    let told = tomograph.classes().all(|class| match class.told {
        Told::Apart(mean) => {
            mean.value.is_finite()
                && mean.value >= 0.0
                && mean.error.is_finite()
                && mean.error >= 0.0
        }
        Told::Mixed | Told::Unseen => true,
    });
    told && tomograph.gap().value.is_finite()
        && tomograph.latency().value.is_finite()
        && tomograph.spread().is_finite()
}

proptest! {
    #[test]
    fn anything_may_come(steps in proptest::collection::vec(step(), 0..300), is_sorted in any::<bool>()) {
        let mut steps = steps;
        if is_sorted {
            // Use consistent indices and times, so that they are processed further.
            let mut indices = [0, 0];
            let mut now = 1;
            for step in &mut steps {
                now += 100_000;
                match step {
                    Step::Packet(queue, packet) => {
                        let index = &mut indices[*queue as usize];
                        (packet.index, packet.submitted) = (*index, now);
                        *index += 1;
                    }
                    Step::Look(queue, look) => {
                        let index = indices[*queue as usize];
                        (look.time, look.read_index, look.before) = (now, index / 2, now - 50_000);
                    }
                    Step::Doorbell(queue, time, read, index) => {
                        let next = indices[*queue as usize];
                        (*time, *read, *index) = (now, next * 2 / 3, next);
                    }
                    Step::End(_) | Step::Solve => {}
                }
            }
        }
        let mut tomograph = Tomograph::new();
        for step in &steps {
            match step {
                Step::Packet(queue, packet) => tomograph.packet(*queue, packet),
                Step::Look(queue, look) => tomograph.look(*queue, look),
                Step::Doorbell(queue, time, read, index) => tomograph.doorbell(*queue, *time, *read, *index),
                Step::End(queue) => tomograph.end(*queue),
                Step::Solve => tomograph.solve(),
            }
        }
        tomograph.finish();
        prop_assert!(is_sound(&tomograph));
    }
}

#[test]
fn there_may_be_more_classes_than_are_told_apart() {
    let mut tomograph = Tomograph::new();
    for index in 0..3_000_u64 {
        let packet = Packet {
            index,
            submitted: 1_000 + index,
            task: Task::Class((index % 1_000) as u32),
            waits: true,
            exact: None,
            ended_by: None,
        };
        tomograph.packet(0, &packet);
    }
    for index in 1..2_900_u64 {
        let time = 1_000_000 + index * 100_000;
        let look = Look {
            time,
            read_index: index,
            write_index: 3_000,
            before: time - 100_000,
        };
        tomograph.look(0, &look);
    }
    tomograph.finish();
    assert!(is_sound(&tomograph));
    assert_eq!(
        tomograph.classes().count(),
        gputrace_tomography::MOST_CLASSES
    );
    assert_eq!(tomograph.told(999), Told::Unseen);
}

/// Processor time used by this thread, in seconds; 0 if the kernel does not report it.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns: f64 = text
        .split(' ')
        .next()
        .and_then(|ns| ns.parse().ok())
        .unwrap_or(0.0);
    ns / 1e9
}

#[test]
#[ignore = "a benchmark; prints the CPU that 20,000 packets a second take"]
fn cost() {
    for (classes, looks) in [(80, 200.0), (80, 1000.0), (500, 200.0)] {
        let mut random = Random::new(5);
        let durations = (0..classes).map(|_| Duration::Spread(10.0 + 70.0 * random.unit(), 0.05));
        let scenario = Scenario {
            classes: durations.collect(),
            order: Order::Random,
            launch: Launch::Ahead(64),
            seconds: 20.0,
            looks: (looks, 0.2),
            ..Scenario::default()
        };
        let items = given(&scenario, 1);
        let mut tomograph = Tomograph::new().frugal();
        let (mut last, mut from) = (cpu(), 0);
        for (at, item) in items.iter().enumerate() {
            item.give(&mut tomograph);
            let seconds = at * 4 / items.len();
            if seconds != from {
                let share = (cpu() - last) / 5.0;
                println!(
                    "{classes} classes, looks each {looks} us, {from}. quarter: {:.2} % of a core",
                    100.0 * share
                );
                (last, from) = (cpu(), seconds);
            }
        }
        println!("{} packets and looks", items.len());
    }
}
