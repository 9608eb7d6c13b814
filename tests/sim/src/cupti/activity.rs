//! The functions of the activity interface.
//!
//! Owns: kinds, registration, flushes, the walk through a buffer. Because: they exist twice, for all and for one
//! subscriber. Does not: fill buffers.

use std::sync::atomic::Ordering;

use super::buffers::{CompleteFn, CompleteSecond, Functions, Request};
use super::client::{Client, Clock, LEGACY, find, update_kinds};
use super::{buffers, callbacks, misbehaviour, records, result};
use crate::api::{Code, Out, Status, api};
use crate::link::kind;

/// Enables or disables a kind.
fn switch(client: &Client, kind: u32, on: bool) -> Status {
    if misbehaviour::get().denied {
        return Err(result::INSUFFICIENT_PRIVILEGES);
    }
    // The last kind of CUPTI 13.5.
    if kind == 0 || kind > 59 {
        return Err(result::INVALID_KIND);
    }
    callbacks::attach()?;
    match on {
        true => client.kinds.fetch_or(1 << kind, Ordering::Relaxed),
        false => client.kinds.fetch_and(!(1 << kind), Ordering::Relaxed),
    };
    // A client that enables it during the driver's start gets the device records that come with the start.
    if on && kind == kind::DEVICE && buffers::is_driver_starting() {
        buffers::put_devices(client);
    }
    update_kinds()
}

/// Enables a kind and reports existing objects.
fn switch_on_and_dump(client: &Client, kind: u32) -> Status {
    switch(client, kind, true)?;
    if kind == kind::DEVICE {
        buffers::put_devices(client);
    }
    Ok(())
}

/// The record after another, or the first.
fn next(buffer: *mut u8, valid: usize, record: Out<*mut u8>) -> Status {
    let last = record.get().map_err(|_| result::INVALID_PARAMETER)?;
    if buffer.is_null() {
        return Err(result::INVALID_PARAMETER);
    }
    let at = if last.is_null() { 0 } else { last.addr().wrapping_sub(buffer.addr()) };
    let kind_at = |at: usize| -> Result<u32, Code> {
        if at.checked_add(4).is_none_or(|end| end > valid) {
            return Err(result::INVALID_KIND);
        }
        // SAFETY: within the bytes that the client states as valid.
        Ok(unsafe { buffer.add(at).cast::<u32>().read_unaligned() })
    };
    let at =
        if last.is_null() { 0 } else { at + records::size_of(kind_at(at)?).ok_or(result::INVALID_KIND)? };
    if at >= valid {
        return Err(result::MAX_LIMIT_REACHED);
    }
    let size = records::size_of(kind_at(at)?).ok_or(result::INVALID_KIND)?;
    if at + size > valid {
        return Err(result::INVALID_KIND);
    }
    // SAFETY: within the buffer.
    record.put(unsafe { buffer.add(at) })
}

/// Attributes stored per client: the clock.
const TIMESTAMP_CALLBACK: u32 = 22;

api! { Tool;
    fn cuptiActivityEnable(kind: u32) { switch(&LEGACY, kind, true) }
    fn cuptiActivityEnableAndDump(kind: u32) { switch_on_and_dump(&LEGACY, kind) }
    fn cuptiActivityEnableAndDump_v2(subscriber: usize, kind: u32, _config: usize) { switch_on_and_dump(&*find(subscriber)?, kind) }
    fn cuptiActivityDisable(kind: u32) { switch(&LEGACY, kind, false) }
    fn cuptiActivityEnable_v2(subscriber: usize, kind: u32, _config: usize) { switch(&*find(subscriber)?, kind, true) }
    fn cuptiActivityDisable_v2(subscriber: usize, kind: u32, _config: usize) { switch(&*find(subscriber)?, kind, false) }
    fn cuptiActivityRegisterCallbacks(request: Option<Request>, complete: Option<CompleteFn>) {
        let (Some(request), Some(complete)) = (request, complete) else { return Err(result::INVALID_PARAMETER) };
        LEGACY.buffers.register(Functions::First(request, complete));
        Ok(())
    }
    fn cuptiActivityRegisterCallbacks_v2(subscriber: usize, request: Option<Request>, complete: Option<CompleteSecond>) {
        let (Some(request), Some(complete)) = (request, complete) else { return Err(result::INVALID_PARAMETER) };
        find(subscriber)?.buffers.register(Functions::Second(request, complete));
        Ok(())
    }
    fn cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: Out<*mut u8>) { next(buffer, valid, record) }
    fn cuptiActivityGetNextRecord_v2(subscriber: usize, buffer: *mut u8, valid: usize, record: Out<*mut u8>) {
        find(subscriber)?;
        next(buffer, valid, record)
    }
    fn cuptiActivityFlushAll(flag: u32) {
        // 1 forces delivery of incomplete records. Without it, running work is omitted, as here.
        if flag & 1 == 0 {
            buffers::settle();
        }
        for client in super::client::all() {
            client.buffers.deliver_all(&client);
        }
        Ok(())
    }
    fn cuptiActivityFlush(_context: usize, _stream: u32, _flag: u32) {
        for client in super::client::all() {
            client.buffers.deliver_all(&client);
        }
        Ok(())
    }
    fn cuptiActivityFlushPeriod(milliseconds: u32) {
        for client in super::client::all() {
            client.buffers.set_period(milliseconds);
        }
        Ok(())
    }
    fn cuptiActivityGetNumDroppedRecords(_context: usize, _stream: u32, count: Out<usize>) {
        count.put(LEGACY.buffers.take_dropped() as usize)
    }
    fn cuptiActivityGetNumDroppedRecords_v2(subscriber: usize, _context: usize, _stream: u32, count: Out<usize>) {
        count.put(find(subscriber)?.buffers.take_dropped() as usize)
    }
    fn cuptiActivityRegisterTimestampCallback(clock: Option<Clock>) {
        LEGACY.clock.store(clock.map_or(0, |clock| clock as usize), Ordering::Release);
        Ok(())
    }
    fn cuptiActivityEnableLatencyTimestamps(_on: u8) { Ok(()) }
    fn cuptiActivitySetAttribute(_attribute: u32, _size: Out<usize>, _value: usize) { Ok(()) }
    fn cuptiActivityGetAttribute(_attribute: u32, _size: Out<usize>, _value: usize) { Err(result::NOT_SUPPORTED) }
    fn cuptiActivitySetAttribute_v2(subscriber: usize, attribute: u32, _size: Out<usize>, value: crate::api::In<usize>) {
        let client = find(subscriber)?;
        if attribute == TIMESTAMP_CALLBACK {
            client.clock.store(value.get().map_err(|_| result::INVALID_PARAMETER)?, Ordering::Release);
        }
        Ok(())
    }
    fn cuptiActivityGetStructSize(kind: u32, _version: u32, size: Out<usize>) {
        size.put(records::size_of(kind).ok_or(result::INVALID_KIND)?)
    }
    fn cuptiSetThreadIdType(_kind: u32) { Ok(()) }
    fn cuptiGetThreadIdType(kind: Out<u32>) { kind.put(1) }
    fn cuptiActivityPushExternalCorrelationId(_kind: u32, _id: u64) { Ok(()) }
    fn cuptiActivityPopExternalCorrelationId(_kind: u32, last: Out<u64>) {
        last.put_if_wanted(0);
        Err(Code(18))
    }
    fn cuptiActivityEnableDriverApi(_id: u32, _on: u8) { Ok(()) }
    fn cuptiActivityEnableRuntimeApi(_id: u32, _on: u8) { Ok(()) }
}

const _: () = assert!(kind::GRAPH < 64);
