//! The shared-memory provider's memory: arenas (one per client process and service), the slots in them
//! (one per connection), and one side's view of a slot.

pub mod arena;
pub mod board;
mod fences;
pub mod layout;
mod nap;
mod owner;
pub mod segment;

#[cfg(test)]
pub(crate) mod tests;
