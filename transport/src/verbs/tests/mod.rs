//! Tests of the adapters' layer that need no adapter. What needs one runs in a virtual machine (scripts/test-rdma).

mod address;
mod infiniband;
mod layout;
mod standin;
