//! A thread that reads processes for the collector, which must not wait for them.
//!
//! Each read is bounded ([`gputrace_reader`]), but many of them are long all the same, and the rings would run
//! full meanwhile. So the collector gives orders and goes on; answers come back as commands. It gives no more orders than
//! fit into the channel.

use std::{
    io,
    sync::mpsc::{Receiver, Sender, SyncSender, sync_channel},
    thread,
};

use gputrace_abi::gpu::Packet;

use crate::{
    Command, constants,
    late::{self, Late},
};

/// Orders that wait.
const ROOM: usize = 512;

/// What is to be read.
#[derive(Debug)]
pub(crate) enum Order {
    /// The constant that a value's record says was not readable.
    Value(Vec<u8>),
    /// Packets of one queue of a process, each with the one behind it.
    Packets(u32, Vec<(u64, Packet)>),
}

/// What was read.
#[derive(Debug)]
pub enum Read {
    /// The record with the value; `None`: as it was.
    Value(Option<Vec<u8>>),
    /// The packets.
    Packets(Vec<Late>),
}

/// Where orders go to.
#[derive(Debug)]
pub(crate) struct Reading(SyncSender<(u64, Order)>);

impl Reading {
    /// Starts the thread. It ends after the collector, or is left behind.
    pub(crate) fn start(answers: Sender<Command>) -> io::Result<Self> {
        let (orders, given) = sync_channel(ROOM);
        thread::Builder::new()
            .name("reading".to_owned())
            .spawn(move || run(&given, &answers))?;
        Ok(Self(orders))
    }

    /// Gives an order; false if there is no room for it.
    pub(crate) fn order(&self, number: u64, order: Order) -> bool {
        self.0.try_send((number, order)).is_ok()
    }
}

fn run(orders: &Receiver<(u64, Order)>, answers: &Sender<Command>) {
    // A program whose text is to be read may end soon. If this fails, the first order will as well.
    let _ = gputrace_reader::prepare();
    while let Ok((number, order)) = orders.recv() {
        let read = match order {
            Order::Value(record) => Read::Value(constants::completed(&record)),
            Order::Packets(pid, due) => {
                let mut late = Vec::new();
                late::read(pid, &due, &mut late);
                Read::Packets(late)
            }
        };
        // A collector that is gone needs nothing any more.
        if answers.send(Command::Read(number, Box::new(read))).is_err() {
            return;
        }
    }
}
