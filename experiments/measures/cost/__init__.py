"""What does the encoder cost: in parameters, operations, time and memory, at the training length and beyond?"""
