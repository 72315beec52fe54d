"""How questions travel to servers of the OpenAI protocol, and answers back."""
