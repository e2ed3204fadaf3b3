//! apps placeholder
