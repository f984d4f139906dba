"""Does an encoder that was trained on short sequences still work on long ones?"""
