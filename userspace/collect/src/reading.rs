//! A thread that reads the memory of processes for the collector, which must not wait for them.
//!
//! Each reading is bounded ([`gputrace_reader`]), but many of them take long nevertheless, and the
//! rings would fill up meanwhile. So the collector sends orders and continues; answers come back as
//! commands. It sends no more orders than fit into the channel.

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

/// Maximum number of waiting orders.
const ROOM: usize = 512;

/// A reading to be made.
#[derive(Debug)]
pub(crate) enum Order {
    /// The constant that a value's record marks as unreadable.
    Value(Vec<u8>),
    /// Packets of one queue of a process, each with the later packet that covered it.
    Packets(u32, Vec<(u64, Packet)>),
}

/// Result of a reading.
#[derive(Debug)]
pub enum Read {
    /// The record with the value; `None`: the record stays as it was.
    Value(Option<Vec<u8>>),
    /// The packets.
    Packets(Vec<Late>),
}

/// The sending end for orders.
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

    /// Sends an order. Returns false if there is no room for it.
    pub(crate) fn order(&self, number: u64, order: Order) -> bool {
        self.0.try_send((number, order)).is_ok()
    }
}

fn run(orders: &Receiver<(u64, Order)>, answers: &Sender<Command>) {
    // Prepared now because a program whose text is to be read may end soon. If this fails, the
    // first order fails as well.
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
        // If the collector is gone, nobody needs the answer.
        if answers.send(Command::Read(number, Box::new(read))).is_err() {
            return;
        }
    }
}
