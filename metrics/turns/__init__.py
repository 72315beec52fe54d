"""Whether the replies of a conversation keep to topics, and to what was retrieved for them."""
